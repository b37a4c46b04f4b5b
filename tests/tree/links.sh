#!/usr/bin/env bash
# Every link of a page to another file leads somewhere.
#
#   tests/tree/links.sh FOLDER     README.md, CONTRIBUTING.md and docs/ of the tree, or of an installation
set -euo pipefail
cd "$1"
count=0 broken=0
for page in *.md docs/*.md; do
    while read -r target; do
        count=$((count + 1))
        [[ -e $(dirname "$page")/$target ]] || {
            echo "$page: $target is not there" >&2
            broken=$((broken + 1))
        }
    done < <(grep -oE '\]\([^)#]+' "$page" | sed 's/^](//' | grep -vE '^[a-z]+:' || true)
done
[[ $count -gt 20 ]] || { echo "only $count links found under $PWD" >&2; exit 1; }
[[ $broken -eq 0 ]]
echo "$count links"
