#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds libcuflash into build/ and runs attention, forward and backward, through its C ABI:
# on the GPU if there is one, else on the CPU. Prints which kernel ran, its error against fp64 and its speed.
#
# usage: scripts/run.sh [--arch LIST] [--build-dir DIR] [--device auto|cuda|host]
#   --arch LIST      CUDA architectures, "80-real;90" say; by default that of the GPU here
#   --build-dir DIR  by default build
#   --device WHERE   where to run; by default the GPU if there is one
#
# Needs a C++ compiler, Python and the CUDA Toolkit. cmake and ninja are installed if they are missing: with apt-get
# where that is possible, else with pip into .venv.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

architectures=""
build_dir=$repo_dir/build
device=auto
while [[ $# -gt 0 ]]; do
  case "$1" in
    --arch) architectures=$(value_of "$@"); shift 2 ;;
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --device) device=$(value_of "$@"); shift 2 ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done

install_build_tools
find_cuda
architectures=${architectures:-$(architectures_for_this_machine)}

step "Building for $architectures into $build_dir"
configure "$build_dir" "$architectures" -DCUFLASH_BUILD_TESTS=OFF -DCUFLASH_BUILD_BENCHMARKS=OFF \
  -DCUFLASH_BUILD_EXAMPLES=ON
build "$build_dir" --target attention_demo

step "Attention"
"$build_dir/examples/attention_demo" --device "$device"
