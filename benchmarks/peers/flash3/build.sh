#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fetches FlashAttention-3's public source into FOLDER/source and builds FOLDER/libflash3.so: flash3.cu and the kernels
# that the grid of compare_torch.py needs. Nothing of it belongs into this repository. Takes git, the CUDA Toolkit, and
# about a quarter of an hour of one core; a second call builds what the first one has not.
#
# usage: benchmarks/peers/flash3/build.sh FOLDER [JOBS]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../../scripts/lib.sh"

commit=0251105a2fb19d2957484b7f023cd8c115286ced
kernels=({fwd,bwd}_hdim{64,128,256}_bf16 {fwd,bwd}_hdim128_fp16)
# Those of the source's setup.py, without what dense problems do not choose.
# shellcheck disable=SC2054 # the commas are of nvcc and of braces
flags=(
  -O3 -std=c++17 --use_fast_math -gencode arch=compute_90a,code=sm_90a --expt-relaxed-constexpr --expt-extended-lambda
  -Xcompiler=-fPIC -Xcompiler=-fvisibility=hidden -Xcompiler=-fvisibility-inlines-hidden -w -DNDEBUG
  -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DCUTLASS_ENABLE_GDC_FOR_SM90
  -DFLASHATTENTION_DISABLE_{LOCAL,SOFTCAP,VARLEN,APPENDKV,PAGEDKV,SPLIT}
  -I source/hopper -I source/csrc/cutlass/include
)

case "${1:---help}" in -h | --help) print_help; exit ;; esac
jobs=${2:-1}
mkdir -p "$1/objects"
cd "$1"
find_cuda

if [[ ! -d source ]]; then
  step "Fetching the source"
  git init -q fetched
  git -C fetched fetch -q --depth 1 https://github.com/Dao-AILab/flash-attention "$commit"
  git -C fetched checkout -q FETCH_HEAD
  git -C fetched submodule update -q --init --depth 1 csrc/cutlass
  mv fetched source
fi

compile() {  # SOURCE OBJECT
  note "$2"
  "$CUDACXX" "${flags[@]}" -DFLASH3_COMMIT="\"$commit\"" -c "$1" -o "$2.part"
  mv "$2.part" "$2"
}

step "Compiling into $PWD"
compile "$here/flash3.cu" objects/flash3.o
for kernel in "${kernels[@]}"; do
  [[ -f objects/$kernel.o ]] && continue
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
  compile "source/hopper/instantiations/flash_${kernel}_sm90.cu" "objects/$kernel.o" &
done
while [[ -n $(jobs -p) ]]; do wait -n; done

objects=(flash3 "${kernels[@]}")
objects=("${objects[@]/#/objects/}")
"$CUDACXX" -shared -cudart static -Xlinker -s,-Bsymbolic,-z,defs "${objects[@]/%/.o}" -o libflash3.so
step "Built $PWD/libflash3.so"
