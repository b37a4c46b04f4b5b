#!/usr/bin/env bash
# scripts/compare_runs.py: steps and seconds to a loss, of runs whose numbers are known.
set -euo pipefail

compare=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../scripts" && pwd)/compare_runs.py
command -v python3 >/dev/null || { echo "compare_runs: skipped, python3 is not here" && exit 0; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# train STEP SECONDS_OF_A_STEP, valid STEP LOSS: lines of metrics.jsonl
train() { echo "{\"kind\":\"train\",\"step\":$1,\"step_time_s\":$2}"; }
valid() { echo "{\"kind\":\"eval\",\"step\":$1,\"eval_loss\":$2}"; }
start='{"kind":"run","version":"0"}'

# run NAME SECONDS_OF_A_STEP LOSS_AT_10 LOSS_AT_20: a line of kind train for every fourth step and the last, as
# log_interval 4 gives.
run() {
    mkdir "$folder/$1"
    {
        echo "$start"
        train 4 "$2" && train 8 "$2" && valid 10 "$3"
        train 12 "$2" && train 16 "$2" && train 20 "$2" && valid 20 "$4"
    } >"$folder/$1/metrics.jsonl"
}
run fast-1 0.1 4.0 2.0
run fast-2 0.2 3.25 2.25
run slow 0.1 4.0 3.5
# Started again: the longer and better first start does not count. The last line is cut off.
mkdir "$folder/again"
{
    echo "$start" && train 8 9 && valid 10 1.0 && train 16 9 && valid 30 0.5
    echo "$start" && train 4 1 && train 8 1 && valid 10 5.0 && train 12 0.5 && train 16 0.5 && valid 20 2.5
    printf '{"kind":"eval","st'
} >"$folder/again/metrics.jsonl"
mkdir "$folder/wild"
{ echo "$start" && train 4 1 && valid 4 '"inf"' && train 8 1 && valid 8 2.0; } >"$folder/wild/metrics.jsonl"

table=$("$compare" "$folder"/fast-1/ "$folder"/fast-2 "$folder"/slow "$folder"/again "$folder"/wild --target 3.0 \
    --svg "$folder/losses.svg")
# 4 to 2 passes 3 at step 15 and 3.25 to 2.25 at 12.5, at 0.1 and 0.2 s a step. 5 to 2.5 passes 3 at step 18, after 8 steps
# of 1 s and 10 of 0.5 s, the last two of which no line tells of.
wanted='| fast | 2 | 20 | 2.125 (2.000 to 2.250) | 3.0 (2.0 to 4.0) | 14 (12 to 15) | 2.0 (1.5 to 2.5) |
| slow | 1 | 20 | 3.500 | 2.0 | not reached | not reached |
| again | 1 | 20 | 2.500 | 14.0 | 18 | 13.0 |
| wild | 1 | 8 | 2.000 | 8.0 | 8 | 8.0 |'
[[ $(tail -n 4 <<<"$table") == "$wanted" ]] || fail "wanted:" "$wanted" "found:" "$table"
(($(grep -c '<polyline' "$folder/losses.svg") == 4)) || fail "the drawing has not one curve for each entry"
grep -q '^</svg>$' "$folder/losses.svg" || fail "the drawing has no end"
! grep -qE 'nan|inf' "$folder/losses.svg" || fail "the drawing has places that are no numbers"

# refuses MESSAGE ARGUMENT...
refuses() {
    local message
    ! message=$("$compare" "${@:2}" 2>&1) || fail "accepted: ${*:2}"
    [[ $message == *"$1"* ]] || fail "wanted: $1" "found: $message"
    [[ $message != *Traceback* ]] || fail "found: $message"
}
mkdir "$folder"/{other-1,other-2,empty,broken}
{ echo "$start" && train 4 1 && valid 4 2.0; } >"$folder/other-1/metrics.jsonl"
{ echo "$start" && train 4 1 && valid 3 2.0; } >"$folder/other-2/metrics.jsonl"
echo "$start" >"$folder/empty/metrics.jsonl"
{ echo "$start" && valid 4 2.0 && echo '{"kind":"tra'; } >"$folder/broken/metrics.jsonl"
mkdir "$folder"/{list,bytes}
{ echo "$start" && echo '[]'; } >"$folder/list/metrics.jsonl"
{ echo "$start" && printf '\377\n'; } >"$folder/bytes/metrics.jsonl"

refuses "no validation loss; train.eval_interval" "$folder/empty"
refuses "broken/metrics.jsonl:3: not a line of metrics" "$folder/broken"
refuses "list/metrics.jsonl:2: not a line of metrics" "$folder/list"
refuses "bytes/metrics.jsonl:2: not a line of metrics" "$folder/bytes"
refuses "none/metrics.jsonl: No such file" "$folder/none"
refuses "nowhere/a.svg: No such file" "$folder/slow" --svg "$folder/nowhere/a.svg"
refuses "other: its runs were never validated at the same step" "$folder"/other-1 "$folder"/other-2
