#!/usr/bin/env bash
# Runs every command of README.md: each block fenced as ```bash, in order, in a copy of the tree. A block that ends with
# anything but 0, or takes longer than $seconds, is a failure; the tree has the programs that scripts/quickstart.sh builds and
# no others, as a reader's has. A block of other text below a comment "output of: COMMAND" must be what that command prints,
# with parts left out where a line is "...". What would be the same work again is shortened, and said:
#   scripts/quickstart.sh ...   trains 12 steps with the programs that are built
#   scripts/test.sh ...         prints its help: this test is part of it
#   cmake --build ...           tells what it would build
#
#   tests/readme/run_commands.sh PROGRAMS [README]     PROGRAMS: folder of the programs
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
programs=$(cd "$1" && pwd)
readme=${2:-$root/README.md}
seconds=300

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/mfsdp
mkdir -p "$tree/build/cpu/bin" "$scratch/blocks" "$scratch/outputs"
for entry in "$root"/*; do
    case ${entry##*/} in
        build | runs | data) ;;
        *) cp -R "$entry" "$tree" ;;
    esac
done
built=$(sed -n 's/^ *build cpu //p' "$root/scripts/quickstart.sh" | tr ' ' '\n' | sort)
[[ $built == "$(basename -s .cpp "$root"/apps/*.cpp | sed 's/^/mfsdp-/; s/_/-/g' | sort)" ]] || {
    printf 'scripts/quickstart.sh builds not all programs, which cmake --install needs, but:\n%s\n' "$built" >&2
    exit 1
}
for program in $built; do ln -s "$programs/$program" "$tree/build/cpu/bin"; done

# What is only shown, as in job scripts, must name files that are there too.
while read -r _ file; do
    [[ $file == runs/* || -e $root/$file ]] || { echo "$readme names --config $file, which is not there" >&2; exit 1; }
done < <(grep -oE -- '--config [A-Za-z0-9_./-]+\.json' "$readme" | sort -u)

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
# Outputs: the first line of a file is the command, the others are what the page shows of its output.
awk -v folder="$scratch/outputs" '
    /^<!-- output of: .* -->$/ { command = $0; gsub(/^<!-- output of: | -->$/, "", command); next }
    /^```/ && command != "" { file = sprintf("%s/line_%d", folder, NR); print command > file; command = ""; inside = 1; next }
    /^```/ { inside = 0 }
    inside { print > file }' "$readme"
outputs=("$scratch"/outputs/*)
[[ -e ${outputs[0]} ]] || { echo "$readme shows no output to compare" >&2; exit 1; }
for shown in "${outputs[@]}"; do
    command=$(head -n 1 "$shown")
    printf '\n---- README.md output %s\n%s\n' "$(basename "$shown")" "$command"
    timeout "$seconds" bash -euo pipefail -c "$command" </dev/null >"$scratch/output"
    tail -n +2 "$shown" | awk '
        NR == FNR { printed[NR] = $0; total = NR; next }
        /^ *\.\.\.$/ { gap = 1; next }
        {
            ++at
            while (gap && at <= total && printed[at] != $0) ++at
            gap = 0
            if (printed[at] != $0 || at > total) {
                printf "**** shown:   %s\n**** printed: %s\n", $0, printed[at]
                exit failed = 1
            }
        }
        END { exit failed || (at < total && !gap) }' "$scratch/output" - || {
        failures=$((failures + 1))
        echo "**** the page does not show what the command prints"
    }
done
printf '\n%d blocks and %d outputs, %d failed\n' "${#blocks[@]}" "${#outputs[@]}" "$failures"
[[ $failures -eq 0 ]]
