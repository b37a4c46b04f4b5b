#!/usr/bin/env bash
# usage: scripts/prepare_text.sh TARGET [FILE_OR_FOLDER]
#
# Puts text files into the folder TARGET as <name>.txt, the same files in the same order every time, and touches only what
# is new. Without a source: the plain-text files of the fortunes packages.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
answer_help "$@"
export LC_ALL=C # order of bytes, not of a language

[[ $# -eq 1 || $# -eq 2 ]] || fail 2 "usage: scripts/prepare_text.sh TARGET [FILE_OR_FOLDER]"
target=$1 source=${2:-/usr/share/games/fortunes}
[[ -e $source ]] || fail 1 "$source is not there: install the packages fortunes and fortunes-min, or name a text file or folder"

# Regular files only: the packages' .u8 names are links to the same text. Of text only: their .dat files are indices,
# and grep -I takes a file with zero bytes for binary. An empty file has nothing to train on.
mapfile -d '' -t files < <(find -H "$source" -type f -size +0 ! -name '*.dat' ! -path '*/.git/*' -print0 | sort -z)
mkdir -p "$target"
declare -A wanted=()
new=0
for file in "${files[@]}"; do
    grep -Iq . "$file" || continue
    # The path below the folder, flattened; "%" keeps a/b and a_b apart.
    name=$([[ $file == "$source" ]] && basename "$file" || echo "${file#"$source"/}")
    name=${name//%/%25}
    name=${name//\//%2F}
    name=$target/${name%.txt}.txt
    [[ -z ${wanted[$name]:-} ]] || fail 1 "$file and ${wanted[$name]} would both become $name"
    wanted[$name]=$file
    cmp -s "$file" "$name" && continue
    cp "$file" "$name.part"
    mv "$name.part" "$name"
    new=$((new + 1))
done
[[ ${#wanted[@]} -gt 0 ]] || fail 1 "no text file under $source"

# What an earlier source left behind would be trained on too.
for file in "$target"/*.txt; do
    [[ -n ${wanted[$file]:-} ]] || rm -f "$file"
done
note "$target: ${#wanted[@]} files, $(cat "$target"/*.txt | wc -c) bytes, $new of them new"
