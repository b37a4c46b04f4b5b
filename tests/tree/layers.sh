#!/usr/bin/env bash
# The layers of docs and CMake hold for every #include: base is below all; device sees base; comm and model see device;
# optim sees device and model; runtime sees all; apps see runtime. What is not seen through a public header is not seen.
# Only apps and runtime/config read or write the environment.
#
#   tests/tree/layers.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
declare -A sees=(
    [base]="base" [device]="base device" [comm]="base device comm" [model]="base device model"
    [optim]="base device model optim" [runtime]="base device comm model optim runtime"
)
failed=0 includes=0
for layer in "${!sees[@]}"; do
    [[ -d src/$layer && -d include/mfsdp/$layer ]] || { echo "no layer $layer under $PWD" >&2; exit 1; }
    while IFS= read -r line; do
        includes=$((includes + 1))
        target=${line##*\"mfsdp/}
        target=${target%%/*}
        # mfsdp/version.h and the like belong to base.
        [[ $target != *.h\" ]] || target=base
        [[ " ${sees[$layer]} " == *" $target "* ]] || {
            echo "$layer does not see $target: $line" >&2
            failed=1
        }
    done < <(grep -rnE '#include "mfsdp/' "src/$layer" "include/mfsdp/$layer")
    # Headers of a layer's own folder under src are that layer's alone.
    for other in "${!sees[@]}"; do
        [[ $other != "$layer" ]] || continue
        # NCCL's executor runs on the streams of the CUDA backend and is part of its module.
        ! grep -rnE "#include \"$other/" "src/$layer" "include/mfsdp/$layer" |
            grep -vE '^src/comm/(nccl/|executors/nccl_executor).*#include "device/cuda(/|_module.h)' >&2 || failed=1
    done
done
# What public headers include, every user must have installed.
if grep -rnE '#include [<"](mpi|nccl|cuda|cublas|cudnn|nlohmann|spdlog|CLI|oneapi)[./_a-z]' include >&2; then
    echo "public headers include no JSON, MPI, CUDA or log headers" >&2
    failed=1
fi
[[ $includes -gt 500 ]] || { echo "only $includes includes found" >&2; exit 1; }
if grep -rnwE '(secure_)?getenv|setenv|putenv|unsetenv' src include | grep -v '^src/runtime/config/' >&2; then
    echo "the environment is for apps and runtime/config" >&2
    failed=1
fi
grep -rqw getenv src/runtime/config || { echo "runtime/config reads no environment: searched the wrong place" >&2; exit 1; }
[[ $failed -eq 0 ]]
echo "$includes includes keep to the layers"
