#!/usr/bin/env bash
# clang-tidy on the .cpp files that changed: against the merge base with origin/main on a branch, else in the last
# commit, and what is not committed yet. At most $limit of them and $seconds for each; what is left out is said. Every
# version has other checks under the same names, so only the one that the tree is written with can judge: Debian 12's.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
limit=12 seconds=240 version=14

skip() {
    note "clang-tidy: skipped, $1"
    exit 0
}

tool=$(command -v "clang-tidy-$version" || command -v clang-tidy || true)
[[ -n $tool ]] || skip "the tool is not installed (scripts/setup.sh --tests installs it)"
[[ $("$tool" --version) == *"version $version."* ]] || skip "the tree is written with version $version and here is another"
git rev-parse --verify --quiet HEAD >/dev/null 2>&1 || skip "this tree has no git history to tell what changed"
[[ -f build/cpu/compile_commands.json ]] || fail 1 "build/cpu is not configured: cmake --preset cpu"

base=$(git merge-base origin/main HEAD 2>/dev/null || true)
[[ -n $base && $base != "$(git rev-parse HEAD)" ]] || base=$(git rev-parse --verify --quiet HEAD~1 || true)
[[ -n $base ]] || skip "the history has one commit only"

mapfile -t changed < <({
    git diff --name-only --diff-filter=d "$base"
    git ls-files --others --exclude-standard
} | grep '\.cpp$' | LC_ALL=C sort -u)
# The compilation database knows what this build compiles.
files=()
for file in "${changed[@]}"; do
    if grep -Fq "\"$ROOT/$file\"" build/cpu/compile_commands.json; then files+=("$file"); fi
done
[[ ${#files[@]} -gt 0 ]] || skip "no compiled file changed since $(git rev-parse --short "$base")"
if [[ ${#files[@]} -gt $limit ]]; then
    note "clang-tidy: ${#files[@]} files changed, the first $limit are checked; not checked: ${files[*]:$limit}"
    files=("${files[@]:0:$limit}")
fi

# Compiler warnings are GCC's business, in the build: -w. Each file prints its findings in one piece.
check() {
    local output code=0
    output=$(timeout "$2" "$tool" --quiet -p build/cpu --extra-arg=-w "$1" 2>/dev/null) ||
        code=$?
    [[ $code -ne 0 ]] || return 0
    [[ $code -ne 124 ]] || output="$1: not checked, clang-tidy took more than $2 s"
    printf '%s\n' "$output"
    [[ $code -eq 124 ]]
}
export -f check
export tool
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -I '{}' bash -c "check '{}' $seconds" ||
    fail 1 "clang-tidy found something in: ${files[*]}"
note "clang-tidy: ${#files[@]} files"
