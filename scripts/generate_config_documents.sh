#!/usr/bin/env bash
# usage: scripts/generate_config_documents.sh [PROGRAMS]     PROGRAMS: folder of mfsdp-train, build/cpu/bin by default
#
# Writes what is generated from the schema table: configs/schema.json, and the part of docs/config.md between its two
# "generated" comments. After a change of src/runtime/config/schema_*.cpp; a test compares.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
answer_help "$@"

train=${1:-build/cpu/bin}/mfsdp-train
[[ -x $train ]] || fail 1 "$train: not there; build it, or name the folder it is in"
"$train" --print-schema json >configs/schema.json
tables=$(mktemp)
trap 'rm -f "$tables"' EXIT
"$train" --print-schema keys >"$tables"
awk -v tables="$tables" '
    /^<!-- generated: end/ { inside = 0 }
    !inside { print }
    /^<!-- generated: begin/ { inside = 1; while ((getline line < tables) > 0) print line }' docs/config.md >"$tables.page"
mv "$tables.page" docs/config.md
