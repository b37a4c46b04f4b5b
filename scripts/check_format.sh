#!/usr/bin/env bash
# Fails if clang-format would change a source file; names the lines. Layout differs a little between its versions, so
# only the one that the tree is written with can judge: Debian 12's.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
version=14

tool=$(command -v "clang-format-$version" || command -v clang-format || true)
if [[ -z $tool ]]; then
    note "clang-format: skipped, the tool is not installed (scripts/setup.sh --tests installs it)"
    exit 0
fi
if [[ $("$tool" --version) != *"version $version."* ]]; then
    note "clang-format: skipped, the tree is written with version $version and here is $("$tool" --version)"
    exit 0
fi

mapfile -d '' -t files < <(find include src apps tests -type f \( -name '*.h' -o -name '*.cpp' \) -print0)
[[ ${#files[@]} -gt 0 ]] || fail 1 "no source files found"
"$tool" --dry-run -Werror "${files[@]}" || fail 1 "run $tool -i on the files above"
note "clang-format: ${#files[@]} files"
