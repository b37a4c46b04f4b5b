#!/usr/bin/env bash
# usage: scripts/cuda_coverage.sh [BUILD FOLDER]      default: build/coverage
#
# Which lines of the CUDA backend (src/device/cuda, src/comm/nccl) the tests of the emulated device run: builds the
# emulated device with counters, runs the tests that use it, and prints a table of files and the lines that never ran.
# Code of cuDNN and what nvcc alone compiles is not in it. Needs the CUDA toolkit's headers, Boost.Context, gcov, python3.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
answer_help "$@"
[[ $# -le 1 && ${1:-} != -* ]] || fail 2 "unknown arguments '$*'; usage: scripts/cuda_coverage.sh [BUILD FOLDER]"
folder=$(realpath -m "${1:-build/coverage}")
export_mpi_environment

say "configuring $folder"
cmake --preset cpu -B "$folder" -DMFSDP_CUDA_COVERAGE=ON >/dev/null
say "building"
cmake --build "$folder" --target device_tests model_tests optim_tests runtime_tests process_tests mpi_ranks
find "$folder" -name '*.gcda' -delete

say "testing"
ctest --test-dir "$folder" --output-on-failure --parallel "$(nproc)" --quiet \
    --tests-regex '[Ee]mulated|CUDA|NCCL|comm\.nccl|GPU' || fail 1 "tests failed"

say "lines"
find "$folder" -path '*mfsdp_cuda_emulated.dir*' -name '*.gcda' -print0 |
    xargs -0 -r gcov --json-format --stdout |
    python3 "$ROOT/scripts/cuda_coverage/report.py" "$ROOT"
