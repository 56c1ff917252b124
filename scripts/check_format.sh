#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks that C, C++ and CUDA sources are formatted as .clang-format says, with clang-format 14 (others differ).
#
# usage: scripts/check_format.sh [--fix]
#   --fix  formats them instead
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mode=(--dry-run -Werror)
case "${1:-}" in
  "") ;;
  --fix) mode=(-i) ;;
  -h | --help) print_help; exit ;;
  *) die "unknown option $1; see --help" ;;
esac

formatter=$(command -v clang-format-14 || command -v clang-format) || die "clang-format 14 is not installed"
"$formatter" --version | grep -q 'version 14\.' || die "$("$formatter" --version): version 14 is needed"

cd "$repo_dir"
# examples/minimal.c is laid out by hand: the README shows it.
find include src tests benchmarks examples scripts -type f \
  \( -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' \) ! -path examples/minimal.c -print0 |
  xargs -0 "$formatter" "${mode[@]}"
