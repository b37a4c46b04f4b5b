#!/usr/bin/env bash
# A tiny model is trained on one emulated GPU and on several, by the emulated NCCL: the losses are the same, to the bit.
# For the builds with sanitizers; process/cuda_test.cpp compares more in the others.
#
#   tests/apps/emulated_training.sh PROGRAM MODULE RANKS
set -euo pipefail
shopt -s inherit_errexit  # a run that fails must fail here
program=$1 module=$2 ranks=$3
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# train DEVICES [LAUNCHER]...: prints the losses. Streams go at their own pace, blocks run on one thread.
train() {
    local run_dir="$folder/run$1"
    MFSDP_CUDA_MODULE=$module MFSDP_EMULATED_CUDA="devices=$1,asynchronous=1,seed=$1,workers=1" \
        "${@:2}" "$program" --config "$root/configs/quickstart.json" --set device=cuda \
        --set "data.train=[\"$root/docs/config.md\"]" --set "telemetry.run_dir=$run_dir" \
        --set model.n_embd=24 --set model.n_head=3 --set model.n_layer=2 --set train.seq_len=32 --set train.steps=3 \
        --set train.micro_batch_size=1 --set train.global_batch_size=5 --set optimizer.warmup_steps=1 >&2
    sed -n 's/.*"kind":"train".*"loss":\([0-9.e+-]*\).*/\1/p' "$run_dir/metrics.jsonl"
}

alone=$(train 1)
together=$(train "$ranks" mpirun --oversubscribe --bind-to none -np "$ranks")
printf 'losses on one rank:\n%s\non %d:\n%s\n' "$alone" "$ranks" "$together"
[[ $(wc -l <<<"$alone") -eq 3 && $alone == "$together" ]]
