#!/usr/bin/env bash
# A test that needs the emulated device is compiled only where tests/CMakeLists.txt tells its file where that lies.
# A bracket in the name of a test case makes CMake take all cases of its program for one, which then runs none of them.
#
#   tests/tree/test_names.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
needy=$(grep -rlE --include='*_test.cpp' '^#ifdef MFSDP_EMULATED_CUDA_MODULE|"support/cuda_devices.h"' tests)
[[ -n $needy ]] || { echo "no tests of the emulated device" >&2; exit 1; }
for file in $needy; do
    grep -qE "(^| )${file#tests/}( |\$)" tests/CMakeLists.txt || { echo "$file is not told MFSDP_EMULATED_CUDA_MODULE" >&2; exit 1; }
done

names=$(grep -rnoE --include='*_test.cpp' 'TEST_CASE\("[^"]*"' tests)
[[ $(wc -l <<<"$names") -gt 100 ]] || { echo "no test cases under tests" >&2; exit 1; }
if grep -E '\("[^"]*[][]' <<<"$names"; then
    echo "names of test cases with brackets" >&2
    exit 1
fi
