#!/usr/bin/env bash
# scripts/compare_runs.py: steps and seconds to a loss, of runs whose numbers are known.
set -euo pipefail

compare=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../scripts" && pwd)/compare_runs.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# run NAME SECONDS_OF_A_STEP LOSS_AT_10 LOSS_AT_20: a line of kind train for every fifth step, as log_interval 5 gives.
run() {
    mkdir "$folder/$1"
    {
        echo '{"kind":"run","version":"0"}'
        for step in 5 10 15 20; do
            echo "{\"kind\":\"train\",\"step\":$step,\"step_time_s\":$2}"
            [[ $step != 10 ]] || echo "{\"kind\":\"eval\",\"step\":10,\"eval_loss\":$3}"
            [[ $step != 20 ]] || echo "{\"kind\":\"eval\",\"step\":20,\"eval_loss\":$4}"
        done
    } >"$folder/$1/metrics.jsonl"
}
run fast-1 0.1 4.0 2.0
run fast-2 0.2 3.5 2.5
run slow 0.1 4.0 3.5

table=$("$compare" "$folder"/fast-1 "$folder"/fast-2 "$folder"/slow --target 3.0 --svg "$folder/losses.svg")
# 4 to 2 and 3.5 to 2.5 both pass 3 at step 15, at 0.1 and 0.2 s a step.
wanted='| fast | 2 | 20 | 2.250 (2.000 to 2.500) | 3.0 (2.0 to 4.0) | 15 (15 to 15) | 2.2 (1.5 to 3.0) |
| slow | 1 | 20 | 3.500 | 2.0 | not reached | not reached |'
[[ $(tail -n 2 <<<"$table") == "$wanted" ]] || fail "wanted:" "$wanted" "found:" "$table"
(($(grep -c '<polyline' "$folder/losses.svg") == 2)) || fail "the drawing has not one curve for each entry"
grep -q '^</svg>$' "$folder/losses.svg" || fail "the drawing has no end"

echo '{"kind":"run","version":"0"}' >"$folder/slow/metrics.jsonl"
! message=$("$compare" "$folder/slow" 2>&1) || fail "a run without validation was accepted"
[[ $message == *"no validation loss; train.eval_interval"* ]] || fail "found: $message"
! message=$("$compare" "$folder/none" 2>&1) || fail "a missing run was accepted"
[[ $message == *"none/metrics.jsonl: No such file"* ]] || fail "found: $message"
