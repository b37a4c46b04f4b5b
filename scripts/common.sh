# shellcheck shell=bash
# What the other scripts share; sourced, never run. Sets ROOT, the top of the source tree, and goes there.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

say() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
fail() {
    local code=$1
    shift
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit "$code"
}

# answer_help ARGUMENT...: with -h or --help alone prints the calling script's first comment, which begins with its usage.
answer_help() {
    case $* in
        -h | --help) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$ROOT/scripts/$(basename "$0")" && exit 0 ;;
    esac
}

# Open MPI, told by variables so that every mpirun below this shell obeys: more ranks than cores may start; they are
# not bound to cores and give the core away while they wait (without that, eight ranks on two cores are a hundred times
# slower); root may start them. Values that are already set stay.
export_mpi_environment() {
    export OMPI_MCA_rmaps_base_oversubscribe="${OMPI_MCA_rmaps_base_oversubscribe:-1}"
    export OMPI_MCA_hwloc_base_binding_policy="${OMPI_MCA_hwloc_base_binding_policy:-none}"
    export OMPI_MCA_mpi_yield_when_idle="${OMPI_MCA_mpi_yield_when_idle:-1}"
    if [[ $(id -u) -eq 0 ]]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
}

# configure PRESET FOLDER [CMAKE ARGUMENT]...: into build/FOLDER; CMake's output is shown only when it fails.
configure() {
    local preset=$1 folder=$2 log
    shift 2
    say "configuring build/$folder"
    log=$(mktemp)
    if ! cmake --preset "$preset" -B "build/$folder" "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        fail 1 "cmake --preset $preset failed"
    fi
    sed -n 's/^-- \(\(MPI\|oneDNN\|OpenBLAS\|ICU\|CUDA\|NCCL\|cuDNN\) not found\)/    \1/p' "$log"
    rm -f "$log"
}

# build FOLDER TARGET...
build() {
    local folder=$1
    shift
    say "building in build/$folder: $*"
    cmake --build "build/$folder" --target "$@"
}
