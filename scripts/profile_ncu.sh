#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Profiles one forward and one backward call of each room with Nsight Compute and writes profile.json, from which
# scripts/performance_report.py makes a table. Needs a GPU, its performance counters, and ncu (CUDA Toolkit).
#
# usage: scripts/profile_ncu.sh [OPTION]... [-- CUFLASH_BENCH_OPTION...]
#   --kernels LIST   rooms by name; by default all that run on a GPU
#   --op LIST        of fwd,bwd; by default both
#   --dtype TYPE     by default fp32
#   --shape LIST     B,HQ,HK,SQ,SK,D; by default 4,16,16,2048,2048,128
#   --causal         a causal mask; by default none
#   --build-dir DIR  with benchmarks/cuflash_bench, perhaps built elsewhere; by default build-gpu
#   --out FILE       by default docs/performance/<gpu>/profile.json; profiles of other calls in it stay
#   --keep DIR       keeps ncu's reports and CSV files there
#   --launches N     launches that are looked at for those of one call; by default 12
#
# The commit in the record comes from CUFLASH_COMMIT, else from git if there is one. Clocks are left as they are. A room
# that cannot serve the shape is named and left out. Ends with 1 if a profile failed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The command for the record, without the folders of this machine.
command_text="profile_ncu.sh${*:+ ${*##*/}}"
kernels=""
operations=fwd,bwd
dtype=fp32
shape=4,16,16,2048,2048,128
mask=--full
build_dir=$repo_dir/build-gpu
out=""
keep=""
launches=12
extra=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --kernels) kernels=$(value_of "$@"); shift 2 ;;
    --op) operations=$(value_of "$@"); shift 2 ;;
    --dtype) dtype=$(value_of "$@"); shift 2 ;;
    --shape) shape=$(value_of "$@"); shift 2 ;;
    --causal) mask=--causal; shift ;;
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --out) out=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --keep) keep=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --launches) launches=$(value_of "$@"); shift 2 ;;
    --) shift; extra=("$@"); break ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done

find_ncu() {
  local candidate
  for candidate in "$(command -v ncu || true)" {"${CUDA_HOME:-/usr/local/cuda}",/usr/local/cuda}/bin/ncu \
    $(compgen -G '/opt/nvidia/nsight-compute/*/ncu' | sort -rV); do
    if [[ -n $candidate && -x $candidate ]]; then
      echo "$candidate"
      return
    fi
  done
}

commit=${CUFLASH_COMMIT:-$(git -C "$repo_dir" rev-parse HEAD 2>/dev/null || echo unknown)}
use_build_libraries "$build_dir"
unset_steering_variables
bench=$build_dir/benchmarks/cuflash_bench
[[ -x $bench ]] || die "$bench is missing: build with scripts/build_for_gpu.sh"
ncu=$(find_ncu)
[[ -n $ncu ]] || die "ncu not found: it comes with the CUDA Toolkit (Nsight Compute)"
have nvidia-smi || die "nvidia-smi not found: this script needs an NVIDIA GPU and its driver"
IFS=, read -r gpu driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)
driver=${driver# }
slug=$(tr '[:upper:] ' '[:lower:]-' <<<"${gpu#NVIDIA }")
out=${out:-$repo_dir/docs/performance/$slug/profile.json}
ncu_version=$("$ncu" --version | sed -n 's/^Version \([^ ]*\).*/\1/p')
library=$("$bench" --caps | sed -n 's/^library: //p')
if [[ -z $kernels ]]; then
  kernels=$("$bench" --list | sed -n 's/^kernels: //p' | tr ' ' '\n' | grep -vxE 'host|naive' | paste -sd,)
fi
work=$keep
if [[ -z $work ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
note "$gpu, driver $driver, ncu $ncu_version, $library"

sections=(
  SpeedOfLight LaunchStats Occupancy SchedulerStats WarpStateStats ComputeWorkloadAnalysis MemoryWorkloadAnalysis
)
metrics=(
  l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum
  l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
  sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active
)

# profile BENCHMARK OPTION...: one call's launches into profile.json. A backward benchmark runs a forward call first;
# kernels are named after their operation, fwd_... and bwd_..., which tells them apart.
profile() {
  local benchmark=$1 report=$work/${1//\//-}
  shift
  step "$benchmark"
  "$ncu" --force-overwrite --export "$report" --target-processes all --clock-control none \
    --kernel-name-base demangled --kernel-name "regex:cuflash::.*${benchmark%%/*}_" --launch-count "$launches" \
    "${sections[@]/#/--section=}" --metrics "$(IFS=,; echo "${metrics[*]}")" \
    "$bench" "$@" --max-seconds 0.001 "--benchmark_filter=^$benchmark" >"$report.log" 2>&1 ||
    { tail -n 20 "$report.log" >&2; return 1; }
  "$ncu" --import "$report.ncu-rep" --csv --page raw --print-units base >"$report.csv" ||
    { grep -E '==(ERROR|WARNING)==' "$report.log" >&2 || tail -n 20 "$report.log" >&2; return 1; }
  python3 -B "$repo_dir/scripts/profile_report.py" --csv "$report.csv" --benchmark "$benchmark" --out "$out" \
    --gpu "$gpu" --driver "$driver" --ncu "$ncu_version" --library "$library" --commit "$commit" --command "$command_text"
}

profiled=0
failures=0
for kernel in ${kernels//,/ }; do
  options=(--kernel "$kernel" --op "$operations" --dtype "$dtype" --shape "$shape" "$mask" "${extra[@]}")
  while read -r benchmark; do
    verdict=$("$bench" "${options[@]}" --dry-run | grep "^$benchmark: " || true)
    if [[ $verdict != *": runs" ]]; then
      note "left out: $verdict"
      continue
    fi
    profile "$benchmark" "${options[@]}" || failures=$((failures + 1))
    profiled=$((profiled + 1))
  done < <("$bench" "${options[@]}" --list | sed -n 's/^  //p')
done
[[ $failures -eq 0 ]] || die "$failures of $profiled profiles failed"
[[ $profiled -gt 0 ]] || die "nothing was profiled"
step "Written: ${out#"$repo_dir"/}"
