#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs everything that needs a GPU and records it: the GPU tests, the sanitizers and a quick benchmark. Writes
# docs/verification/<gpu>.json, bound to the sources by their digest, and docs/performance/<gpu>/quick.json.
#
# usage: scripts/verify_gpu.sh [OPTION]...
#   --level N        how much the tests cover (CUFLASH_TEST_LEVEL): 1 a few minutes, 2 more, 3 everything; by default 1
#   --out DIR        writes into DIR/verification and DIR/performance instead of docs/, and the log to DIR/verify.log
#   --build-dir DIR  by default build-gpu
#   --no-build       uses what scripts/build_for_gpu.sh built, perhaps on another machine; needs no compiler and no cmake
#   --arch LIST      CUDA architectures to build for; by default that of the GPU here
#   --steps LIST     some of tests,sanitizers,benchmark; by default all
#   --program NAME   with tests: only this test program; may be repeated
#
# A record of the same sources, binaries and GPU in DIR or docs/ is completed: steps may run in separate calls.
# Needs no git and no network. The commit in the record comes from CUFLASH_COMMIT, else from git if there is one.
# Ends with 1 if anything failed; the record is written all the same.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

level=1
out_dir=""
build_dir=$repo_dir/build-gpu
build=yes
arch=()
selection=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --level) level=$(value_of "$@"); shift 2 ;;
    --out) out_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --no-build) build=no; shift ;;
    --arch) arch=(--arch "${2:?--arch needs a list}"); shift 2 ;;
    --steps | --program) selection+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done
[[ $level =~ ^[123]$ ]] || die "--level must be 1, 2 or 3"
have nvidia-smi || die "nvidia-smi not found: this script needs an NVIDIA GPU and its driver"

[[ $build == no ]] || "$repo_dir/scripts/build_for_gpu.sh" --build-dir "$build_dir" "${arch[@]}"
use_build_libraries "$build_dir"
if [[ -n $out_dir ]]; then log=$out_dir/verify.log; else log=$build_dir/verify.log; fi
exec python3 "$repo_dir/scripts/gpu_evidence.py" run --build-dir "$build_dir" --out "${out_dir:-$repo_dir/docs}" \
  --log "$log" --level "$level" "${selection[@]}"
