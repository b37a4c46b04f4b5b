#!/usr/bin/env bash
# From a fresh machine to a trained model: packages, build, text, four ranks under mpirun, and where everything lies.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
usage: scripts/quickstart.sh [--text FILE_OR_FOLDER] [--steps N] [--ranks N] [--no-build]
  --text      train on this text file, or on every text file under this folder
              (default: the plain-text files of the distribution's fortunes packages, 2.5 MB of English)
  --steps     optimizer steps (default: those of configs/quickstart.json)
  --ranks     processes (default: 4)
  --no-build  neither install nor build: run build/cpu/bin as it is
END
}

bad_usage() {
    printf 'quickstart.sh: %s\n' "$1" >&2
    usage >&2
    exit 2
}

positive() { [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || bad_usage "$1 = $2: must be a whole number >= 1"; }

text="" steps="" ranks=4 build=yes
while [[ $# -gt 0 ]]; do
    case $1 in
        --text | --steps | --ranks)
            [[ $# -ge 2 && -n $2 ]] || bad_usage "$1: needs a value"
            case $1 in
                --text) text=$2 ;;
                --steps) positive "$1" "$2" && steps=$2 ;;
                --ranks) positive "$1" "$2" && ranks=$2 ;;
            esac
            shift 2
            ;;
        --no-build) build=no && shift ;;
        -h | --help) usage && exit 0 ;;
        *) bad_usage "unknown argument '$1'" ;;
    esac
done
# All ranks share this machine; hundreds of processes would only bring it to a halt.
[[ $ranks -le 64 ]] || bad_usage "--ranks = $ranks: must be at most 64"
# common.sh went to the top of the tree; a path is meant from where the caller stands.
if [[ -n $text ]]; then
    [[ $text == /* ]] || text=$OLDPWD/$text
    [[ -f $text || -d $text ]] || bad_usage "--text = $text: no such file or folder"
fi

started=$SECONDS
if [[ $build == yes ]]; then
    scripts/setup.sh
    configure cpu cpu
    build cpu mfsdp-train mfsdp-plan mfsdp-data mfsdp-bench
fi
[[ -x build/cpu/bin/mfsdp-train ]] || fail 1 "build/cpu/bin/mfsdp-train is not there; run without --no-build"

say "preparing text"
config=configs/quickstart.json
overrides=()
name=quickstart
if [[ -n $text ]]; then
    # A folder and a run of its own for every text, so that going back to another one finds it as it was left.
    name=$(basename "$text" | tr -c 'A-Za-z0-9\n' _)-$(cksum <<<"$text" | cut -d ' ' -f 1)
    overrides+=(--set "data.train=[\"data/$name/*.txt\"]" --set "telemetry.run_dir=runs/$name")
fi
scripts/prepare_text.sh "data/$name" ${text:+"$text"}

if [[ -n $steps ]]; then
    overrides+=(--set "train.steps=$steps")
    # The configured warm-up must fit: never more than a tenth of a short run.
    [[ $steps -ge 200 ]] || overrides+=(--set "optimizer.warmup_steps=$((steps / 10))")
fi

say "training: $ranks ranks, $config"
run=runs/$name
train() { mpirun -np "$ranks" build/cpu/bin/mfsdp-train --config "$config" "${overrides[@]}" "$@" </dev/null; }
export_mpi_environment
launch=$SECONDS
# mpirun gives ranks a pseudo-terminal whatever its own output is: only this script knows whether a person looks on. A
# log shows the first step and every tenth; metrics.jsonl has them all.
if [[ -t 1 ]]; then
    train --set telemetry.console=bar
else
    train | sed -u '/^step [0-9]*[1-9]\//{/^step 1\//!d}'
fi || fail $? "training ended with exit code $?"
trained=$((SECONDS - launch))

# First and last loss of this start: metrics.jsonl is appended to, and every start begins with a line of kind "run".
read -r first_step first_loss last_step last_loss < <(awk '
    function value(key) {
        return match($0, "\"" key "\":[^,}]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : ""
    }
    /"kind":"run"/ { first = "" }
    /"kind":"train"/ { last = value("step") " " value("loss"); if (first == "") first = last }
    END { if (first != "") print first, last }' "$run/metrics.jsonl") ||
    fail 1 "$run/metrics.jsonl holds no line of this run"

say "done"
note "$(printf 'loss     %.4f at step %d, %.4f at step %d (nat per byte)' "$first_loss" "$first_step" "$last_loss" "$last_step")"
note "time     ${trained} s of training, $((SECONDS - started)) s in all"
note "weights  $run/model           (Hugging Face format)"
note "metrics  $run/metrics.jsonl   (one JSON object per line)"
note "config   $run/config.resolved.json"
note "log      $run/logs/rank_00000.log"
note "text     data/$name"

# A whole run must learn well, a cut one must learn at all; a single step has nothing to compare.
share=0.6
[[ -z $steps || $steps -ge 200 ]] || share=1
if [[ $last_step != "$first_step" ]] &&
    ! awk -v first="$first_loss" -v last="$last_loss" -v share="$share" 'BEGIN { exit !(last + 0 < share * first) }'; then
    fail 1 "the last loss $last_loss is not below $share x the first, $first_loss"
fi
