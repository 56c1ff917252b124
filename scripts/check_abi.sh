#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Compares the binary interface of a built library, functions and the types they reach, with the committed baseline
# tests/packaging/libcuflash.abi, by libabigail's abidiff. Any difference fails: --update accepts it, and an incompatible
# one belongs under "ABI" in CHANGELOG.md.
#
# usage: scripts/check_abi.sh [--build-dir DIR] [--update]
#   --build-dir DIR  a build with debug information (-g) of the library's host code; by default build-asan, as CI makes it
#   --update         writes the baseline
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_dir=$repo_dir/build-asan
update=no
while [[ $# -gt 0 ]]; do
  case "$1" in
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --update) update=yes; shift ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done

baseline=$repo_dir/tests/packaging/libcuflash.abi
library=$build_dir/src/libcuflash.so
[[ -e $library ]] || die "$library does not exist"
if ! have abidw && can_apt; then apt_install abigail-tools; fi
have abidw && have abidiff || die "abidw and abidiff not found: install libabigail (abigail-tools on Debian)"

# Folders of this machine are no part of an interface.
current=$(mktemp)
trap 'rm -f "$current"' EXIT
abidw --headers-dir "$repo_dir/include/cuflash" --drop-private-types --exported-interfaces-only --no-corpus-path \
  --no-comp-dir-path --no-show-locs --no-elf-needed "$library" | sed "s|path='[^']*/src/|path='src/|" >"$current"
grep -q "name='cuflashForwardParams'" "$current" || die "$library has no debug information: build its host code with -g"

if [[ $update == yes ]]; then
  cp "$current" "$baseline"
  chmod 644 "$baseline"
  note "wrote ${baseline#"$repo_dir/"}"
else
  abidiff "$baseline" "$current" || die "the binary interface is not that of ${baseline#"$repo_dir/"}; see --help"
  note "the binary interface is that of ${baseline#"$repo_dir/"}"
fi
