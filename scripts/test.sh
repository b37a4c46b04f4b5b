#!/usr/bin/env bash
# Every check of the project: packages, five builds, and one ctest over all of it, whose summary ends the output.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
usage: scripts/test.sh [CTEST ARGUMENT]...
  About 45 minutes on two cores from nothing; a second run builds only what is new and takes some 15.
  Sets up and builds as scripts/quickstart.sh does, with all tests; then runs, in one ctest:
    gate.*    clang-format on all sources, clang-tidy on what changed
    asan.*    the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, without those marked [slow], and the
              CUDA backend on several emulated GPUs
    tsan.*    the CUDA backend on the emulated device, and on several, under ThreadSanitizer; both where the CUDA toolkit
              is installed
    plain.*   products, and a short training, of a build without MPI, oneDNN, OpenBLAS, ICU and CUDA
    fuzz.*    15 seconds of fuzzing for each parser of foreign files, where clang can (see tests/fuzz/run.sh)
    others    every test of the release build, see tests/CMakeLists.txt
  Arguments go to ctest: scripts/test.sh -R comm
END
}
case ${1:-} in
    -h | --help) usage && exit 0 ;;
esac

scripts/setup.sh --tests
export_mpi_environment

configure cpu cpu
build cpu all

units=(base device comm model optim runtime)
configure asan asan
build asan "${units[@]/%/_tests}" mpi_ranks mfsdp-train

# oneDNN has threads of its own that are not compiled for ThreadSanitizer.
configure tsan tsan -DMFSDP_WITH_MPI=ON -DMFSDP_WITH_ONEDNN=OFF
build tsan device_tests mpi_ranks mfsdp-train

configure cpu plain -DMFSDP_WITH_MPI=OFF -DMFSDP_WITH_ONEDNN=OFF -DMFSDP_WITH_LAPACK=OFF -DMFSDP_WITH_ICU=OFF \
    -DMFSDP_WITH_CUDA=OFF
build plain device_tests mfsdp-train mfsdp-data

parsers=(token_file safetensors config tokenizer huggingface)
if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null; then
    configure fuzz fuzz
    build fuzz "${parsers[@]/%/_fuzz}"
else
    note "fuzz: skipped, clang++ with libFuzzer is not installed (scripts/setup.sh --tests installs it)"
    parsers=()
fi

say "testing"
# ctest reads plain CMake from its folder: what is no test of build/cpu is put before those that are.
gate=$ROOT/build/gate
mkdir -p "$gate"
{
    echo "# Written by scripts/test.sh."
    # add NAME COMMAND [ARGUMENT]...; the label is what stands before the point
    add() {
        printf 'add_test(%s' "$1"
        printf ' "%s"' "${@:2}"
        printf ')\nset_tests_properties(%s PROPERTIES LABELS %s TIMEOUT 1800)\n' "$1" "${1%%.*}"
    }
    add gate.clang_format "$ROOT/scripts/check_format.sh"
    add gate.clang_tidy "$ROOT/scripts/check_tidy.sh"
    echo 'set_tests_properties(gate.clang_format gate.clang_tidy PROPERTIES SKIP_REGULAR_EXPRESSION ": skipped, ")'
    for unit in "${units[@]}"; do
        [[ $unit == runtime ]] || add "asan.$unit" "$ROOT/build/asan/bin/${unit}_tests" "~[slow]"
    done
    # The longest in two, which run at the same time.
    add asan.runtime "$ROOT/build/asan/bin/runtime_tests" "~[slow]" "~*same bits*"
    add asan.same_bits "$ROOT/build/asan/bin/runtime_tests" "~[slow]" "*same bits*"
    if [[ -e $ROOT/build/tsan/bin/libmfsdp_cuda_emulated.so ]]; then
        # Without the three that race on purpose. Of the table of operations the run with late streams is enough: prompt
        # ones have no threads of their own, only a kernel's blocks could race, and these the other run has too.
        add tsan.emulated_cuda "$ROOT/build/tsan/bin/device_tests" "*CUDA*" "~*with prompt streams*" \
            "~streams of the CUDA device do not wait*" "~a CUDA stream has more events*" \
            "~the emulated CUDA device notices*"
        for sanitizer in asan tsan; do
            # With more ranks than four each is the same again.
            add "$sanitizer.nccl" ctest --test-dir "$ROOT/build/$sanitizer" --output-on-failure --no-tests=error \
                --tests-regex "^comm[.]nccl_" --exclude-regex "_8"
            add "$sanitizer.training" "$ROOT/tests/apps/emulated_training.sh" "$ROOT/build/$sanitizer/bin/mfsdp-train" \
                "$ROOT/build/$sanitizer/bin/libmfsdp_cuda_emulated.so" 3
        done
    fi
    add plain.device "$ROOT/build/plain/bin/device_tests" "~[slow]"
    add plain.train "$ROOT/tests/apps/short_training.sh" "$ROOT/build/plain/bin/mfsdp-train"
    add plain.data "$ROOT/build/plain/bin/mfsdp-data" tokenize --output "$ROOT/build/plain/tokens" \
        --tokenizer "$ROOT/tests/runtime/data/gpt2_tokenizer" "$ROOT/README.md"
    echo 'set_tests_properties(plain.data PROPERTIES PASS_REGULAR_EXPRESSION "this program was built without ICU")'
    for parser in "${parsers[@]}"; do
        add "fuzz.$parser" "$ROOT/tests/fuzz/run.sh" "$ROOT/build/fuzz/bin" "$parser" 15
    done
    echo "subdirs(\"$ROOT/build/cpu\")"
} >"$gate/CTestTestfile.cmake"
export LSAN_OPTIONS="suppressions=$ROOT/scripts/lsan.supp:print_suppressions=0"
export TSAN_OPTIONS="suppressions=$ROOT/scripts/tsan.supp"
exec ctest --test-dir "$gate" --output-on-failure --parallel "$(nproc)" "$@"
