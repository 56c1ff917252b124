#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the kernels without a GPU: builds them and the GPU tests for the emulated device of scripts/emulator, and runs
# the tests. Thousands of times slower than a GPU, but what it finds is exact: each launch draws an order of its warps
# anew, asynchronous copies arrive as late as they may, and memory that is not written yet is poison.
#
# usage: scripts/emulate.sh [OPTION]... [TEST]...
#   TEST             test_gpu_small, test_gpu_features ...; by default test_gpu_small
#   --build-dir DIR  by default build-emulator
#   --jobs N         compilers at once; by default as many as there are cores
#   --level N        CUFLASH_TEST_LEVEL, from 0; by default 0
#   --seed N         of the orders that warps run in; by default 1
#   --filter PATTERN GoogleTest's filter
#
# Needs an x86-64 CPU, a C++ compiler and the headers of the CUDA Toolkit, but no nvcc.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_dir=$repo_dir/build-emulator
jobs=$(nproc)
level=0
seed=1
filter='*'
tests=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --jobs) jobs=$(value_of "$@"); shift 2 ;;
    --level) level=$(value_of "$@"); shift 2 ;;
    --seed) seed=$(value_of "$@"); shift 2 ;;
    --filter) filter=$(value_of "$@"); shift 2 ;;
    -h | --help) print_help; exit ;;
    -*) die "unknown option $1; see --help" ;;
    *) tests+=("$1"); shift ;;
  esac
done
[[ ${#tests[@]} -gt 0 ]] || tests=(test_gpu_small)

install_build_tools
install_test_libraries
find_cuda
step "Building ${tests[*]} for the emulated device into $build_dir"
cmake -S "$repo_dir/scripts/emulator" -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=Release
cmake --build "$build_dir" --parallel "$jobs" --target "${tests[@]}"
for name in "${tests[@]}"; do
  step "Running $name on the emulated device"
  CUFLASH_TEST_LEVEL=$level CUFLASH_EMULATOR_SEED=$seed "$build_dir/tests/gpu/$name" "--gtest_filter=$filter"
done
