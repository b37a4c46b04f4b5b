#!/usr/bin/env bash
# Runs every command of README.md: each block fenced as ```bash, in order, in a copy of the tree. A block that ends with
# anything but 0, or takes longer than $seconds, is a failure. What would be the same work again is shortened, and said:
#   scripts/quickstart.sh ...   trains 12 steps with the programs that are built
#   scripts/test.sh ...         prints its help: this test is part of it
#   cmake --build ...           tells what it would build
#
#   tests/readme/run_commands.sh PROGRAMS [README]     PROGRAMS: folder of mfsdp-train, -plan and -data
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$(cd "$1" && pwd)
readme=${2:-$root/README.md}
seconds=300

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/mfsdp
mkdir -p "$tree/build/cpu" "$scratch/blocks"
for entry in "$root"/*; do
    case ${entry##*/} in
        build | runs | data) ;;
        *) cp -R "$entry" "$tree" ;;
    esac
done
ln -s "$programs" "$tree/build/cpu/bin"

awk -v folder="$scratch/blocks" '
    /^ *```bash *$/ { inside = 1; file = sprintf("%s/%03d_line_%d", folder, ++count, NR); printf "" > file; next }
    /^ *```/ { inside = 0 }
    inside { print > file }' "$readme"

blocks=("$scratch"/blocks/*)
[[ -e ${blocks[0]} ]] || { echo "$readme has no block fenced as \`\`\`bash" >&2; exit 1; }

# The launcher is told what scripts/common.sh tells it: root may, ranks may outnumber cores, waiting gives way.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
failures=0
cd "$tree"
for block in "${blocks[@]}"; do
    where=$(basename "$block")
    sed -E -i -e 's#^scripts/quickstart\.sh#& --no-build --steps 12#' -e 's#^scripts/test\.sh.*#scripts/test.sh --help#' \
        -e 's#^(cmake --build [^&|;]*[^&|; ])( *&&.*|)$#\1 -- -n\2#' "$block"
    printf '\n---- README.md block %s\n%s\n' "$where" "$(cat "$block")"
    code=0
    timeout "$seconds" bash -euo pipefail "$block" </dev/null >"$scratch/output" 2>&1 || code=$?
    tail -n 15 "$scratch/output"
    if [[ $code -ne 0 ]]; then
        failures=$((failures + 1))
        printf '**** exit code %d in block %s:\n' "$code" "$where"
        cat "$scratch/output"
    fi
done
printf '\n%d blocks, %d failed\n' "${#blocks[@]}" "$failures"
[[ $failures -eq 0 ]]
