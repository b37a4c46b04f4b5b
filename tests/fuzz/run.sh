#!/usr/bin/env bash
# Fuzzes one parser for a while, from its corpus. New inputs are not kept; an input that breaks something is left in the
# folder of the programs, and named.
#
#   tests/fuzz/run.sh PROGRAMS TARGET SECONDS [LIBFUZZER ARGUMENT]...     e.g. build/fuzz/bin safetensors 60
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$(cd "$1" && pwd) target=$2 seconds=$3
shift 3
corpus=$here/corpus/$target
[[ -n $(ls "$corpus") ]] || { echo "$corpus is empty" >&2; exit 1; }
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$programs/$target-" -print_final_stats=1)
# config and safetensors are text of few words.
[[ ! -f $here/$target.dict ]] || options+=(-dict="$here/$target.dict")
"$programs/${target}_fuzz" "${options[@]}" "$@" "$found" "$corpus" 2>&1 | tee "$found/log" | grep -vE '^(#|INFO|Loading|Dictionary|NEW)' || {
    echo "fuzzing of $target ended with an error" >&2
    exit 1
}
grep -q 'stat::number_of_executed_units' "$found/log"
