#!/usr/bin/env bash
# A bracket in the name of a test case makes CMake take all cases of its program for one, which then runs none of them.
#
#   tests/tree/test_names.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
names=$(grep -rnoE --include='*_test.cpp' 'TEST_CASE\("[^"]*"' tests)
[[ $(wc -l <<<"$names") -gt 100 ]] || { echo "no test cases under tests" >&2; exit 1; }
if grep -E '\("[^"]*[][]' <<<"$names"; then
    echo "names of test cases with brackets" >&2
    exit 1
fi
