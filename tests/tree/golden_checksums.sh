#!/usr/bin/env bash
# The golden files are those that were published: every one is listed in SHA256SUMS and has its sum.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../golden}"
sha256sum --check --strict --quiet SHA256SUMS
diff <(find . -type f ! -name SHA256SUMS | LC_ALL=C sort) <(sed 's/^[0-9a-f]*  //' SHA256SUMS | LC_ALL=C sort) || {
    echo "files above are in one of (folder, SHA256SUMS) only" >&2
    exit 1
}
echo "$(wc -l <SHA256SUMS) files"
