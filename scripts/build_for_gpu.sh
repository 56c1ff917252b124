#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds tests and benchmarks for verify_gpu.sh and leaves build_record.json in the build folder: the digest of the
# sources, the same before and after the build, and a hash of every program and library that was built. The folder can
# then be carried to another machine that has the GPU but no compiler.
#
# usage: scripts/build_for_gpu.sh [--arch LIST] [--build-dir DIR] [--jobs N]
#   --arch LIST      CUDA architectures; by default that of the GPU here
#   --build-dir DIR  by default build-gpu
#   --jobs N         by default as many as ninja likes
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

architectures=""
build_dir=$repo_dir/build-gpu
jobs=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --arch) architectures=$(value_of "$@"); shift 2 ;;
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --jobs) jobs=(--parallel "${2:?--jobs needs a number}"); shift 2 ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done

install_build_tools
install_test_libraries
find_cuda
architectures=${architectures:-$(architectures_for_this_machine)}
step "Building for $architectures into $build_dir"
rm -f "$build_dir/build_record.json"
before=$(python3 "$repo_dir/scripts/source_digest.py")
configure "$build_dir" "$architectures" -DCUFLASH_BUILD_TESTS=ON -DCUFLASH_BUILD_BENCHMARKS=ON
build "$build_dir" "${jobs[@]}"
python3 "$repo_dir/scripts/gpu_evidence.py" stamp --build-dir "$build_dir" --expect "$before"

# Shared libraries of the test tools, for a machine that does not have them.
mkdir -p "$build_dir/lib"
ldd "$build_dir/benchmarks/cuflash_bench" | awk '$1 ~ /^lib(benchmark|gtest|gmock)/ && $3 ~ /^\// { print $3 }' |
  xargs -r cp -L -t "$build_dir/lib"
