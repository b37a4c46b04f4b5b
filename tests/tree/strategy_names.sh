#!/usr/bin/env bash
# A strategy is a choice of placements, made by the planner: its name stands in the configuration and the planner only.
#
#   tests/tree/strategy_names.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
names='matrix_fsdp|zero1_owner|ddp|fsdp_gather|fsdp_gather_once'
allowed='^(src|include/mfsdp)/runtime/(config|placement)/'

found=$(grep -rlwE "$names" src include)
# A search that finds nothing where the names must be has searched the wrong place.
grep -q '^src/runtime/config/' <<<"$found" || { echo "no strategy name under src/runtime/config" >&2; exit 1; }
grep -q '^src/runtime/placement/' <<<"$found" || { echo "no strategy name under src/runtime/placement" >&2; exit 1; }

if strangers=$(grep -vE "$allowed" <<<"$found"); then
    echo "strategy names outside runtime/config and runtime/placement:" >&2
    # shellcheck disable=SC2086  # one file a word: names of sources hold no spaces
    grep -nwE "$names" $strangers >&2
    exit 1
fi
echo "$(wc -l <<<"$found") files name a strategy, all of them in runtime/config and runtime/placement"
