#!/usr/bin/env bash
# usage: scripts/kernel_resources.sh [--write] [FILE.cu]...
#
# Compiles every CUDA kernel for an A100 and an H100 and prints, as a table of markdown, the registers of a thread, the
# shared memory of a block and what spills to memory, as ptxas reports them. Fails if anything spills. One line for each
# kernel template; "26-58" are the least and the most of its instances.
#
# --write puts the table into docs/cuda.md, between its two comments "kernel resources". Needs nvcc, no GPU.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
answer_help "$@"
architectures=(80 90)
document=docs/cuda.md
begin='<!-- kernel resources: written by scripts/kernel_resources.sh --write -->' end='<!-- end of kernel resources -->'

write=false
if [[ ${1:-} == --write ]]; then
    write=true
    shift
fi
command -v nvcc >/dev/null || fail 1 "nvcc is not installed: it belongs to the CUDA toolkit"
files=("$@")
if [[ ${#files[@]} -eq 0 ]]; then files=(src/device/cuda/*.cu); fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
compile=(nvcc)
if command -v ccache >/dev/null; then compile=(ccache nvcc); fi

# The options of the build that decide registers: see cmake/Settings.cmake.
for file in "${files[@]}"; do
    for architecture in "${architectures[@]}"; do
        "${compile[@]}" -std=c++20 -O3 -DNDEBUG --expt-relaxed-constexpr --fmad=false -lineinfo \
            -gencode "arch=compute_$architecture,code=sm_$architecture" -Xptxas -v -Iinclude -Isrc \
            -c "$file" -o "$folder/object.o" 2>"$folder/log" || {
            cat "$folder/log" >&2
            fail 1 "$file does not compile for sm_$architecture"
        }
        # One line an instance: file, architecture, name, registers, shared bytes, stack bytes, spilled bytes.
        awk -v file="$(basename "$file")" -v architecture="$architecture" '
            /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
            /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
            /Used [0-9]+ registers/ {
                registers = shared = 0
                for (i = 1; i <= NF; ++i) {
                    if ($i == "Used") registers = $(i + 1)
                    if ($i ~ /^smem/) shared = $(i - 2)
                }
                print file "\t" architecture "\t" name "\t" registers "\t" shared "\t" stack "\t" spilled
            }' "$folder/log" | c++filt >>"$folder/instances"
    done
done
[[ -s $folder/instances ]] || fail 1 "no kernels in ${files[*]}"

awk -F '\t' -v architectures="${architectures[*]}" '
    function span(low, high) { return low == high ? low : low "-" high }
    {
        name = $3
        sub(/\(.*/, "", name)             # arguments: names hold none before them but that of the unnamed namespace
        if ($3 ~ /\(anonymous namespace\)/) { name = $3; gsub(/\(anonymous namespace\)::/, "", name); sub(/\(.*/, "", name) }
        sub(/<.*/, "", name)              # template arguments
        sub(/.* /, "", name)              # return type
        sub(/.*::/, "", name)
        key = $1 "\t" name
        if (!(key in seen)) { seen[key] = ++count; order[count] = key; shared_low[key] = $5 }
        cell = key "\t" $2
        ++instances[cell]
        if (!(cell in low) || $4 + 0 < low[cell]) low[cell] = $4 + 0
        if (!(cell in high) || $4 + 0 > high[cell]) high[cell] = $4 + 0
        if ($5 + 0 < shared_low[key]) shared_low[key] = $5 + 0
        if ($5 + 0 > shared_high[key]) shared_high[key] = $5 + 0
        if ($6 + 0 > stack[key]) stack[key] = $6 + 0
        spilled[key] += $7
        total += $7
    }
    END {
        columns = split(architectures, architecture, " ")
        line = "| file | kernel | instances |"
        rule = "|---|---|---|"
        for (i = 1; i <= columns; ++i) { line = line " registers sm_" architecture[i] " |"; rule = rule "---|" }
        print line " shared bytes | stack bytes | spilled bytes |"
        print rule "---|---|---|"
        for (row = 1; row <= count; ++row) {
            key = order[row]
            split(key, part, "\t")
            line = "| " part[1] " | " part[2] " | " instances[key "\t" architecture[1]] " |"
            for (i = 1; i <= columns; ++i) {
                cell = key "\t" architecture[i]
                line = line " " span(low[cell], high[cell]) " |"
            }
            print line " " span(shared_low[key] + 0, shared_high[key] + 0) " | " stack[key] + 0 " | " spilled[key] " |"
        }
        exit total > 0 ? 3 : 0
    }' "$folder/instances" >"$folder/table" || spills=true

if $write; then
    [[ -f $document ]] || fail 1 "$document: not there"
    grep -Fq "$begin" "$document" && grep -Fq "$end" "$document" || fail 1 "$document: a comment \"kernel resources\" is missing"
    awk -v begin="$begin" -v end="$end" -v table="$folder/table" '
        $0 == end { inside = 0 }
        !inside { print }
        $0 == begin { inside = 1; while ((getline line < table) > 0) print line }' "$document" >"$folder/document"
    cp "$folder/document" "$document"
    note "$document: $(($(wc -l <"$folder/table") - 2)) kernels"
else
    cat "$folder/table"
fi
[[ -z ${spills:-} ]] || fail 1 "registers of some kernels spill to memory"
