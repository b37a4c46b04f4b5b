#!/usr/bin/env bash
# Every page that a source names is in the repository, under that name.
#
#   tests/tree/named_documents.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
# The golden files are kept as they were published, with the names of their publisher's pages.
mapfile -t names < <(grep -rhoE '[A-Za-z0-9_./-]+\.md\b' --include='*.cpp' --include='*.h' --exclude-dir=golden \
    include src apps tests | sed 's#^/##' | LC_ALL=C sort -u)
[[ ${#names[@]} -ge 5 ]] || { echo "only ${#names[@]} pages are named: searched the wrong place" >&2; exit 1; }
missing=0
for name in "${names[@]}"; do
    [[ -e $name ]] && continue
    echo "$name is not in the repository, but is named in:" >&2
    grep -rlF --exclude-dir=golden "$name" include src apps tests >&2
    missing=$((missing + 1))
done
[[ $missing -eq 0 ]]
echo "${#names[@]} pages"
