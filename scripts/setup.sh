#!/usr/bin/env bash
# usage: scripts/setup.sh [--tests]      --tests: also what scripts/test.sh needs
#
# Installs the distribution's packages that are missing, and nothing else; with none missing it takes no time and asks
# for no rights. Debian 12, Ubuntu 24.04 and whatever has packages of these names.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
answer_help "$@"

# Without these nothing can be built or trained.
required=(g++ cmake ninja-build nlohmann-json3-dev libspdlog-dev libcli11-dev catch2 libopenmpi-dev openmpi-bin)
# Faster products, Shampoo and SOAP, the GPT-2 tokenizer, faster rebuilds, text to train on: the build adapts to what is
# there, quickstart.sh takes --text.
optional=(libdnnl-dev libopenblas-dev libicu-dev ccache fortunes fortunes-min)

case "$*" in
    "") ;;
    --tests) optional+=(clang-format clang-tidy clang libclang-rt-dev libboost-context-dev python3) ;;
    *) fail 2 "unknown argument '$*'; usage: scripts/setup.sh [--tests]" ;;
esac

installed() {
    [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# missing PACKAGE...: those that are not installed, one a line
missing() {
    local package
    for package in "$@"; do installed "$package" || echo "$package"; done
}

command -v dpkg-query >/dev/null || {
    note "no dpkg here: packages are not checked. Needed are: ${required[*]}; useful are: ${optional[*]}"
    exit 0
}
mapfile -t needed < <(missing "${required[@]}")
mapfile -t wanted < <(missing "${optional[@]}")
[[ ${#needed[@]} -gt 0 || ${#wanted[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    # With a terminal sudo may ask for the password; without one it must not.
    if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
        as_root=(sudo)
    elif [[ ${#needed[@]} -gt 0 ]]; then
        fail 1 "packages are missing and this user cannot install them (not root, no sudo); ask for: apt-get install ${needed[*]} ${wanted[*]}"
    else
        note "not installed, goes without (not root, no sudo): ${wanted[*]}"
        exit 0
    fi
fi

say "installing packages: ${needed[*]} ${wanted[*]}"
apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }
install() { apt_get install --yes --no-install-recommends "$@" >/dev/null; }
apt_get update || fail 1 "apt-get update failed (no network, or no right to)"
if ! install "${needed[@]}" "${wanted[@]}"; then
    # One package that this distribution lacks fails them all; only the needed ones must be there.
    [[ ${#needed[@]} -eq 0 ]] || install "${needed[@]}" || fail 1 "apt-get could not install: ${needed[*]}"
    note "not installed, goes without: ${wanted[*]}"
fi
