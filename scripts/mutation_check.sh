#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Are the tests worth anything? Plants the faults of tests/mutations in copies of the sources, one at a time, builds the
# library with each and runs the tests, which must fail.
#
# usage: scripts/mutation_check.sh [OPTION]...
#   --room NAME      the faults of this room, or common; may be repeated. By default all that this machine can run:
#                    without a GPU and --emulate those of common and host, whose tests run on the CPU
#   --fault ID       this one alone, room/name as the run prints it; may be repeated. It completes a record of the same
#                    sources in --out
#   --build-dir DIR  by default build-mutations
#   --no-run         only builds, for another machine: carry DIR/ready.tar.xz there
#   --no-build       uses DIR/ready, or DIR/ready.tar.xz if that is all there is; needs no compiler
#   --arch LIST      CUDA architectures to build for; by default that of the GPU here, else 90-real
#   --emulate        runs the tests of all rooms on the emulated device of scripts/emulator: no GPU is needed
#   --out DIR        writes the record DIR/<device>.json; by default docs/verification/mutations if all rooms are run
#   --jobs N         mutants that are run at once; by default 4
#   --lists          only checks that every fault fits the sources: its text is in its file exactly once
#   --evidence       only checks that the records in docs/verification/mutations are about these sources
#
# Needs no git and no network. Ends with 1 if a fault was not noticed, or a test fails without a fault.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

check=$repo_dir/scripts/mutation_check.py
build_dir=$repo_dir/build-mutations
rooms=()
build=yes
run=yes
faults=()
architectures=""
emulate=no
out_dir=""
jobs=4
while [[ $# -gt 0 ]]; do
  case "$1" in
    --room) rooms+=("$(value_of "$@")"); shift 2 ;;
    --fault) faults+=(--fault "$(value_of "$@")"); shift 2 ;;
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --no-run) run=no; shift ;;
    --no-build) build=no; shift ;;
    --arch) architectures=$(value_of "$@"); shift 2 ;;
    --emulate) emulate=yes; architectures=emulated; shift ;;
    --out) out_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --jobs) jobs=$(value_of "$@"); shift 2 ;;
    --lists | --evidence) exec python3 -B "$check" "${1#--}" ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done

gpu=$(gpu_architecture)
if [[ ${#rooms[@]} -eq 0 ]]; then
  rooms=(common host)
  if [[ -n $gpu || $emulate == yes || $run == no ]]; then
    for list in "$repo_dir"/tests/mutations/*.py; do
      room=$(basename "$list" .py)
      [[ $room == common || $room == host ]] || rooms+=("$room")
    done
    [[ -n $out_dir || $run == no ]] || out_dir=$repo_dir/docs/verification/mutations
  fi
fi
room_options=()
for room in "${rooms[@]}"; do room_options+=(--room "$room"); done

if [[ $build == yes ]]; then
  install_build_tools
  install_test_libraries
  find_cuda
  step "Building the mutants of ${rooms[*]} into $build_dir"
  python3 -B "$check" build --build-dir "$build_dir" "${room_options[@]}" --jobs "$(nproc)" \
    --arch "${architectures:-${gpu:-90}-real}"
  if [[ $run == no ]]; then
    # Mutants differ in a few objects: packed into one stream they take little more than one library.
    tar -C "$build_dir" -cJf "$build_dir/ready.tar.xz" ready
    note "$(du -h "$build_dir/ready.tar.xz" | awk '{ print $1 }') in $build_dir/ready.tar.xz"
  fi
elif [[ -f $build_dir/ready.tar.xz && ! $build_dir/ready/build.json -nt $build_dir/ready.tar.xz ]]; then
  # The folder is older than the archive, or only half unpacked.
  rm -rf "$build_dir/ready" "$build_dir/unpacked"
  mkdir "$build_dir/unpacked"
  tar -C "$build_dir/unpacked" -xJf "$build_dir/ready.tar.xz"
  mv "$build_dir/unpacked/ready" "$build_dir/ready"
  rmdir "$build_dir/unpacked"
  touch "$build_dir/ready/build.json"
fi
if [[ $run == yes ]]; then
  step "Running them"
  python3 -B "$check" run --build-dir "$build_dir" "${room_options[@]}" --jobs "$jobs" \
    "${faults[@]}" ${out_dir:+--out "$out_dir"}
fi
