#!/usr/bin/env bash
# One rank without a launcher trains a tiny model on a text: the program ends well and the loss falls.
#
#   tests/apps/short_training.sh PROGRAM
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$1" --config "$root/configs/quickstart.json" --set "data.train=[\"$root/docs/config.md\"]" \
    --set "telemetry.run_dir=$folder/run" --set telemetry.log_interval=1 --set train.steps=8 \
    --set optimizer.warmup_steps=1 --set model.n_layer=1

losses=$(sed -n 's/.*"kind":"train".*"loss":\([0-9.e+-]*\).*/\1/p' "$folder/run/metrics.jsonl")
echo "$losses" | awk '{ loss[NR] = $1 } END { exit !(NR == 8 && loss[8] < 0.9 * loss[1]) }' || {
    printf 'the losses did not fall by a tenth in eight steps:\n%s\n' "$losses" >&2
    exit 1
}
[[ -s $folder/run/model/model.safetensors ]] || {
    echo "no weights were exported" >&2
    exit 1
}
