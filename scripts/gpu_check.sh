#!/usr/bin/env bash
# Proves and measures the CUDA backend on this machine's GPU; ends with a table.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
usage: scripts/gpu_check.sh [--dependencies DIR] [--output DIR] [--build DIR] [--parts PART,...] [--compare-torch]
  Needs an NVIDIA GPU, the CUDA toolkit, CMake and python3. Builds for the GPU that is here, for one rank: without MPI,
  oneDNN and ICU. Installs nothing: where the packages of scripts/setup.sh are missing, their headers are handed in DIR
  (folders nlohmann, spdlog, fmt, CLI and catch2, of version 2, as in /usr/include of a machine that has them).
    --output DIR     logs, JSON of every measurement, report.json and report.txt (default: build/gpu_check/results)
    --build DIR      default: build/gpu_check
    --parts LIST     some of: build, tests, sanitizer, operations, steps, optimizer, torch (default: all but torch)
    --compare-torch  adds the part torch: the same models trained by PyTorch (compiled, fused attention, same batch)
  Parts:
    build       the backend, its tests and the programs
    tests       every operation against its reference, golden models, optimizers, trajectories, CPU and GPU side by side,
                equal bits of repeated runs
    sanitizer   the operations' tests under compute-sanitizer memcheck
    operations  each operation's share of the measured bandwidth or of the peak of products
    steps       training steps of GPT-2 with 124M, 350M and 1.5B parameters, deterministic and not; tokens/s and MFU
    optimizer   the optimizer step of the same models
  Exit code: 0 if all that was proven holds, 1 if not, 2 usage.
END
}

output='' build_folder=build/gpu_check dependencies='' parts=build,tests,sanitizer,operations,steps,optimizer
while [[ $# -gt 0 ]]; do
    case $1 in
        --dependencies) dependencies=$(cd "$2" && pwd) && shift ;;
        --output) output=$2 && shift ;;
        --build) build_folder=$2 && shift ;;
        --parts) parts=$2 && shift ;;
        --compare-torch) parts=$parts,torch ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && fail 2 "unknown argument '$1'" ;;
    esac
    shift
done
output=${output:-$build_folder/results}
mkdir -p "$output"
output=$(cd "$output" && pwd)
wants() { [[ ,$parts, == *,$1,* ]]; }
for part in ${parts//,/ }; do
    [[ $part =~ ^(build|tests|sanitizer|operations|steps|optimizer|torch)$ ]] || fail 2 "unknown part '$part'"
done

[[ -d /usr/local/cuda/bin ]] && PATH=$PATH:/usr/local/cuda/bin
command -v nvidia-smi >/dev/null || fail 1 "nvidia-smi is not here: this machine has no NVIDIA driver"
command -v nvcc >/dev/null || fail 1 "nvcc is not here: install the CUDA toolkit, or put it into PATH"
command -v python3 >/dev/null || fail 1 "python3 is not here: the report is made by it"
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader >"$output/gpu.txt" ||
    fail 1 "nvidia-smi finds no GPU"
architecture=$(head -n 1 "$output/gpu.txt" | awk -F ', ' '{ gsub(/\./, "", $4); print $4 }')
say "$(head -n 1 "$output/gpu.txt"), sm_$architecture"

# Libraries as packages of Python bring them, where the toolkit has none.
mapfile -t python_libraries < <(python3 - <<'END'
import importlib.util, os
for name in ("nvidia.cudnn", "nvidia.nccl", "nvidia.cu13"):
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    for folder in (found.submodule_search_locations if found else []):
        if os.path.isdir(os.path.join(folder, "lib")):
            print(folder)
END
)

# cuDNN compiles its engines by the toolkit's NVRTC, which it looks for as the loader does.
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
export LD_LIBRARY_PATH="$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

: >"$output/checks.tsv"
rm -f "$output"/{operations,report}.json "$output"/{step,optimizer,torch}_*.json
# check NAME SECONDS COMMAND...: runs it into a log, notes how it ended and how long it took. Never fails itself.
check() {
    local name=$1 limit=$2 log=$output/$1.log begin=$SECONDS code=0
    shift 2
    timeout "$limit" "$@" >"$log" 2>&1 || code=$?
    printf '%s\t%s\t%s\n' "$name" "$code" "$((SECONDS - begin))" >>"$output/checks.tsv"
    note "$name: $([[ $code -eq 0 ]] && echo passed || echo "FAILED ($code), see $log") in $((SECONDS - begin)) s"
}
# check_tests NAME SECONDS PROGRAM TESTS [TOOL]...: the same for tests of ours, run by a tool if one is named; no test, or one
# that is skipped, is no success.
check_tests() {
    # shellcheck disable=SC2016 # the inner shell expands
    check "$1" "$2" bash -o pipefail -c '"${@:4}" "$1" "$2" -w NoTests | tee "$3.tests" && ! grep -q ": skipped, " "$3.tests"' \
        tests "$programs/$3" "$4" "$output/$1" "${@:5}"
}
# measure NAME SECONDS COMMAND...: the same; the command's output is JSON.
measure() {
    local name=$1 limit=$2 begin=$SECONDS code=0
    shift 2
    timeout "$limit" "$@" >"$output/$name.json" 2>"$output/$name.log" || code=$?
    [[ $code -eq 0 ]] || rm -f "$output/$name.json"
    printf '%s\t%s\t%s\n' "$name" "$code" "$((SECONDS - begin))" >>"$output/checks.tsv"
    note "$name: $([[ $code -eq 0 ]] && echo measured || echo "FAILED ($code), see $output/$name.log") in $((SECONDS - begin)) s"
}

programs=$ROOT/$build_folder/bin
[[ $build_folder == /* ]] && programs=$build_folder/bin
if wants build; then
    say "building in $build_folder"
    generator=()
    command -v ninja >/dev/null && generator=(-G Ninja)
    prefix=$(IFS=';' && echo "${python_libraries[*]}")
    begin=$SECONDS
    cmake -S . -B "$build_folder" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CUDA_ARCHITECTURES="$architecture-real" -DCMAKE_PREFIX_PATH="$prefix" \
        -DMFSDP_DEPENDENCIES="$dependencies" -DMFSDP_WITH_MPI=OFF -DMFSDP_WITH_ONEDNN=OFF -DMFSDP_WITH_ICU=OFF \
        -DMFSDP_WITH_EMULATED_CUDA=OFF -DMFSDP_WARNINGS_AS_ERRORS=OFF >"$output/configure.log" 2>&1 ||
        fail 1 "cmake failed, see $output/configure.log"
    grep -E '^-- (CUDA|NCCL|cuDNN) not found' "$output/configure.log" || true
    ! grep -q '^-- CUDA not found' "$output/configure.log" ||
        fail 1 "CMake cannot use nvcc (is the host's compiler too new for it?), see $output/configure.log"
    cmake --build "$build_folder" --parallel "$(nproc)" \
        --target mfsdp_cuda mfsdp-train mfsdp-bench device_tests model_tests optim_tests runtime_tests >"$output/build.log" 2>&1 || {
        grep -m 20 -A 5 -E 'error|FAILED|\*\*\*' "$output/build.log" >&2 || tail -n 20 "$output/build.log" >&2
        fail 1 "the build failed, see $output/build.log"
    }
    printf 'build\t0\t%s\n' "$((SECONDS - begin))" >>"$output/checks.tsv"
    note "built in $((SECONDS - begin)) s"
fi
[[ -x $programs/mfsdp-bench ]] || fail 1 "$programs has no programs: ask for the part build too"

# train_small NAME DEVICE TYPE LIMIT: a short training of a small model.
train_small() {
    check "train_$1" "$4" "$programs/mfsdp-train" --config scripts/gpu_check/small.json --set "device=$2" \
        --set "precision.param_dtype=$3" --set "data.train=[\"$ROOT/README.md\"]" \
        --set "telemetry.run_dir=$output/runs/$1"
}

if wants tests; then
    say "tests"
    rm -rf "$output/runs"  # a run in an old folder would go on in its files
    check_tests operations_agree 240 device_tests "*on the GPU*"
    check_tests golden_models 120 model_tests "golden models on a GPU*"
    check_tests golden_optimizers 120 optim_tests "golden optimizers on a GPU*"
    check_tests golden_trajectories 120 runtime_tests "*golden trajectories on a GPU*"
    for type in float32 bfloat16; do
        train_small "cpu_$type" cpu "$type" 120
        train_small "gpu_$type" cuda "$type" 60
        train_small "gpu_again_$type" cuda "$type" 60
        check "same_bits_$type" 10 cmp "$output/runs/gpu_$type/model/model.safetensors" \
            "$output/runs/gpu_again_$type/model/model.safetensors"
    done
    check losses_agree 10 python3 scripts/gpu_check/report.py losses "$output/runs"
fi

if wants sanitizer; then
    say "compute-sanitizer"
    if command -v compute-sanitizer >/dev/null; then
        check_tests memcheck 150 device_tests "*on the GPU*" \
            compute-sanitizer --tool memcheck --error-exitcode 9 --launch-timeout 120
    else
        note "compute-sanitizer is not installed: skipped"
        printf 'memcheck\tskipped\t0\n' >>"$output/checks.tsv"
    fi
fi

if wants operations; then
    say "operations"
    measure operations 120 "$programs/mfsdp-bench" ops --device cuda --bfloat16 --micro-batch 16 --seq-len 1024 \
        --seconds 0.03 --json
fi

# NAME LAYERS WIDTH HEADS SEQUENCES
models=("124m 12 768 12 32" "350m 24 1024 16 16" "1500m 48 1600 25 8")
model_settings() {
    local width=$3 sequences=$5
    echo --config configs/gpt2_124m.json --set "model.n_layer=$2" --set "model.n_embd=$width" --set "model.n_head=$4" \
        --set parallel.mesh.shard=1 --set precision.param_dtype=bfloat16 --set "train.micro_batch_size=$sequences" \
        --set "train.global_batch_size=$((2 * sequences))"
}
if wants steps; then
    say "training steps"
    for model in "${models[@]}"; do
        read -r name _ <<<"$model"
        for deterministic in true false; do
            # shellcheck disable=SC2046,SC2086 # words of the settings
            measure "step_${name}_deterministic_$deterministic" 120 "$programs/mfsdp-bench" step --device cuda --json \
                --steps 4 $(model_settings $model) --set precision.deterministic=$deterministic
        done
    done
fi
if wants optimizer; then
    say "optimizer steps"
    for model in "${models[@]}"; do
        read -r name _ <<<"$model"
        # shellcheck disable=SC2046,SC2086
        measure "optimizer_$name" 120 "$programs/mfsdp-bench" optimizer --device cuda --json --steps 4 \
            $(model_settings $model)
    done
fi
if wants torch; then
    say "the same models in PyTorch"
    for model in "${models[@]}"; do
        read -r name layers width heads sequences <<<"$model"
        # With the same optimizer on both sides: AdamW alone.
        # shellcheck disable=SC2046,SC2086
        measure "step_${name}_adamw" 120 "$programs/mfsdp-bench" step --device cuda --json --steps 4 \
            $(model_settings $model) --set optimizer.matrix.name=none --set precision.deterministic=false
        measure "torch_$name" 240 python3 scripts/gpu_check/torch_step.py --layers "$layers" --width "$width" \
            --heads "$heads" --sequences "$sequences" --micro-batches 2 --length 1024 --vocabulary 50257 --steps 8
    done
fi

say "report"
python3 scripts/gpu_check/report.py table "$output" | tee "$output/report.txt"
[[ ${PIPESTATUS[0]} -eq 0 ]]
