#!/usr/bin/env bash
# Installs a build into a folder of its own and uses what lies there: a program, the links of the pages, and the libraries
# from another project.
#
#   tests/install/install.sh BUILD_FOLDER
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
cmake --install "$build" --prefix "$prefix" >"$scratch/log" || { cat "$scratch/log"; exit 1; }

"$prefix/bin/mfsdp-plan" --version
"$prefix/bin/mfsdp-plan" --version | grep -E '^mfsdp-plan [0-9]+\.[0-9]+\.[0-9]+ \(git ([0-9a-f]{12}\+?|unknown)\)$'
"$prefix/bin/mfsdp-plan" --config "$prefix/share/mfsdp/configs/gpt_7b.json" --world 8 --plan-only | tail -n 1
for file in share/doc/mfsdp/README.md share/doc/mfsdp/docs/config.md share/doc/mfsdp/LICENSE share/mfsdp/configs/schema.json; do
    [[ -s $prefix/$file ]] || { echo "$file is not installed" >&2; exit 1; }
done

"$root/tests/tree/links.sh" "$prefix/share/doc/mfsdp"

mkdir "$scratch/other"
cat >"$scratch/other/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(other LANGUAGES CXX)
find_package(mfsdp 0.1 REQUIRED)
add_executable(other other.cpp)
target_link_libraries(other PRIVATE mfsdp::mfsdp_runtime)
END
cat >"$scratch/other/other.cpp" <<'END'
#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/version.h"
#include <iostream>
int main(int argc, char** argv) {
    if (argc != 2) return 1;
    std::cout << mfsdp::version() << ' ' << mfsdp::runtime::parse_train_config(argv[1]).model.vocab_size << '\n';
}
END
# As whoever installed it would: the machine's own compiler, and nothing of this tree.
cmake -S "$scratch/other" -B "$scratch/other/build" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
cmake --build "$scratch/other/build" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
"$scratch/other/build/other" "$prefix/share/mfsdp/configs/gpt_7b.json" | grep -x '[0-9.]* 50257'
