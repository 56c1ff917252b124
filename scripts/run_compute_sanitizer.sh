#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the small shapes made for it (the Sanitizer tests of the GPU test programs) under NVIDIA compute-sanitizer.
#
# usage: scripts/run_compute_sanitizer.sh [--build-dir DIR] [--tool NAME]...
#   --build-dir DIR  by default build-gpu
#   --tool NAME      memcheck, initcheck, synccheck or racecheck; by default all four
#
# compute-sanitizer comes with the CUDA Toolkit. It is looked for in CUFLASH_COMPUTE_SANITIZER, on PATH, in the toolkit's
# folders, in DIR/compute-sanitizer and in the PyPI package nvidia-cuda-sanitizer-api.
# A run that takes longer than 300 s is ended and counts as failed.
# Prints one line "sanitizer TOOL PROGRAM: ok|FAILED, N tests, S s" per run. Ends with 1 if a tool found an error, with
# 2 if there is nothing to run or no GPU.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_dir=$repo_dir/build-gpu
tools=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --tool) tools+=("${2:?--tool needs a name}"); shift 2 ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done
[[ ${#tools[@]} -gt 0 ]] || tools=(memcheck initcheck synccheck racecheck)

find_sanitizer() {
  local candidate
  for candidate in "${CUFLASH_COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer || true)" \
    {"${CUDA_HOME:-/usr/local/cuda}","${CUDA_PATH:-/usr/local/cuda}",/usr/local/cuda}/{bin,compute-sanitizer}/compute-sanitizer \
    $(compgen -G '/usr/local/cuda-*/bin/compute-sanitizer' | sort -rV) "$build_dir/compute-sanitizer/compute-sanitizer" \
    "$(sanitizer_of_python)"; do
    if [[ -n $candidate && -x $candidate ]]; then
      echo "$candidate"
      return
    fi
  done
}

sanitizer_of_python() {
  python3 - <<'PYTHON'
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
folders = list(spec.submodule_search_locations) if spec else []
found = [p for f in folders for p in sorted(pathlib.Path(f).glob("cu*/compute-sanitizer/compute-sanitizer"))]
print(found[-1] if found else "")
PYTHON
}

use_build_libraries "$build_dir"
sanitizer=$(find_sanitizer)
unset_steering_variables
export CUFLASH_TEST_LEVEL=1
[[ -n $sanitizer ]] || { echo "compute-sanitizer not found; see --help for where it is looked for" >&2; exit 2; }
note "using $sanitizer"

programs=()
for program in "$build_dir"/tests/test_gpu_* "$build_dir"/tests/*/test_gpu_*; do
  [[ -f $program && -x $program ]] || continue
  tests=$("$program" --gtest_list_tests --gtest_filter='Sanitizer.*:*/Sanitizer.*') ||
    { echo "$program cannot list its tests" >&2; exit 2; }
  [[ $tests != *Sanitizer* ]] || programs+=("$program")
done
[[ ${#programs[@]} -gt 0 ]] || { echo "no test program in $build_dir/tests has Sanitizer tests" >&2; exit 2; }

result=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for program in "${programs[@]}"; do
  for tool in "${tools[@]}"; do
    start=$SECONDS
    verdict=ok
    options=()
    # Of sums of dq that the copy engine has stored (sm90's bwd_kernel), initcheck knows nothing: their reader is left out.
    [[ $tool != initcheck ]] || options=(--kernel-regex-exclude kns=bwd_finish_kernel)
    timeout 300 "$sanitizer" --tool "$tool" --error-exitcode 97 --print-limit 20 "${options[@]}" \
      "$program" --gtest_filter='Sanitizer.*:*/Sanitizer.*' >"$log" 2>&1 || verdict=FAILED
    count=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log")
    skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | head -n 1)
    if [[ $verdict == ok && ( ${count:-0} -eq 0 || ${skipped:-0} -ne 0 ) ]]; then
      verdict="FAILED, ${skipped:-0} tests skipped"
    fi
    echo "sanitizer $tool $(basename "$program"): $verdict, ${count:-0} tests, $((SECONDS - start)) s"
    grep -E '^========= (ERROR|RACECHECK) SUMMARY|LEAK SUMMARY' "$log" | sed 's/^/    /' || true
    if [[ $verdict != ok ]]; then
      result=1
      tail -n 60 "$log"
    fi
  done
done
exit $result
