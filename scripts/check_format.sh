#!/usr/bin/env bash
# Fails if clang-format would change a source file; names the lines.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command -v clang-format >/dev/null || fail 1 "clang-format is not installed; scripts/setup.sh --tests installs it"

mapfile -d '' -t files < <(find include src apps tests -type f \( -name '*.h' -o -name '*.cpp' \) -print0)
[[ ${#files[@]} -gt 0 ]] || fail 1 "no source files found"
clang-format --dry-run -Werror "${files[@]}" || fail 1 "run clang-format -i on the files above"
note "clang-format: ${#files[@]} files"
