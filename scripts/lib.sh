# SPDX-License-Identifier: MIT
# Functions that the other scripts share: source it. Finds the toolkit and the GPU, and installs what a build needs.
# shellcheck shell=bash

repo_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
# What a build is for where no GPU says otherwise: machine code for sm_80 and sm_90, and PTX for newer GPUs.
default_architectures="80-real;90"

build_packages=(cmake ninja-build g++ python3)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev pkg-config binutils)
# shellcheck disable=SC2034 # used by .ci/run
ci_packages=(clang clang-format clang-tidy libclang-rt-dev python3-venv python3-pip dpkg-dev file)

step() { printf '\n==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
# The value of the option that is the first argument: the second.
value_of() {
  [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value; see --help"
  printf '%s' "$2"
}
have() { command -v "$1" >/dev/null 2>&1; }

# Prints the comment at the head of the calling script, without the SPDX line: its help.
print_help() { awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "$0"; }

# Unsets what the caller's shell may hold to steer the library, its tests, GoogleTest and Google Benchmark: they must do
# the same in every shell. gpu_evidence.py has the same list.
unset_steering_variables() {
  local name
  for name in "${!BENCHMARK_@}" "${!CUFLASH_@}" "${!GTEST_@}" "${!TESTBRIDGE_@}"; do unset "$name"; done
}

# --- Packages ---------------------------------------------------------------------------------------------------------

as_root() { if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo -n "$@"; fi; }

can_apt() { have apt-get && have dpkg-query && { [[ $(id -u) -eq 0 ]] || { have sudo && sudo -n true 2>/dev/null; }; }; }

# Those of the given Debian packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

apt_install() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if [[ ${#missing[@]} -eq 0 ]]; then
    note "installed already: $*"
    return
  fi
  note "installing: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# --- Without root: Python packages in .venv, libraries in .deps --------------------------------------------------------

# A virtual environment with the given Python packages, its programs on PATH.
use_venv() {
  if ! "$repo_dir/.venv/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$repo_dir/.venv" # none, or one that was left half made
    python3 -m venv "$repo_dir/.venv" ||
      die "python3 -m venv failed: install python3-venv, or cmake (3.25 or newer) and ninja by hand"
  fi
  "$repo_dir/.venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  export PATH="$repo_dir/.venv/bin:$PATH"
}

version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

cmake_is_new_enough() { have cmake && version_at_least "$(cmake --version | awk 'NR == 1 { print $3 }')" 3.25; }

# build_library NAME URL TAG CMAKE_OPTION...: installs a library's release into .deps, which CMake is told to search.
build_library() {
  local name=$1 url=$2 tag=$3 source=$repo_dir/.deps/source/$1
  shift 3
  if [[ ! -e $repo_dir/.deps/$name-$tag.installed ]]; then
    note "building $name $tag from $url into .deps"
    have git || die "git is needed to fetch $name, or install its development package by hand"
    rm -rf "$source"
    git -c advice.detachedHead=false clone --quiet --depth 1 --branch "$tag" "$url" "$source" ||
      die "cannot fetch $name: install its development package by hand"
    cmake -S "$source" -B "$source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_INSTALL_PREFIX="$repo_dir/.deps" "$@" >/dev/null
    cmake --build "$source/build" --target install >/dev/null
    touch "$repo_dir/.deps/$name-$tag.installed"
  fi
}

use_deps() { export CMAKE_PREFIX_PATH="$repo_dir/.deps${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"; }

# Whether CMake finds a package without further help.
cmake_finds() {
  local folder result=1
  folder=$(mktemp -d)
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(probe CXX)\nfind_package(%s REQUIRED)\n' "$1" \
    >"$folder/CMakeLists.txt"
  cmake -S "$folder" -B "$folder/build" -G Ninja >/dev/null 2>&1 && result=0
  rm -rf "$folder"
  return $result
}

# --- What run.sh, test.sh and CI need ----------------------------------------------------------------------------------

build_tools_are_there() { have c++ && have python3 && have ninja && cmake_is_new_enough; }

install_build_tools() {
  step "Build tools"
  if ! build_tools_are_there; then
    if can_apt; then
      apt_install "${build_packages[@]}"
    else
      note "no apt-get with root rights here: using what is installed, and .venv for the rest"
    fi
  fi
  have c++ || die "no C++ compiler: install g++ (11 or newer)"
  have python3 || die "no python3: install Python 3.9 or newer"
  local wanted=()
  cmake_is_new_enough || wanted+=("cmake>=3.25,<4")
  have ninja || wanted+=(ninja)
  [[ ${#wanted[@]} -eq 0 ]] || use_venv "${wanted[@]}"
  note "cmake $(cmake --version | awk 'NR == 1 { print $3 }'), ninja $(ninja --version)"
}

test_libraries_are_there() { have pkg-config && cmake_finds GTest && cmake_finds benchmark; }

install_test_libraries() {
  step "Test libraries"
  use_deps
  if test_libraries_are_there; then
    note "GoogleTest, Google Benchmark and pkg-config are there"
  elif can_apt; then
    apt_install "${test_packages[@]}"
  else
    cmake_finds GTest || build_library googletest https://github.com/google/googletest.git v1.14.0
    cmake_finds benchmark ||
      build_library benchmark https://github.com/google/benchmark.git v1.9.1 -DBENCHMARK_ENABLE_TESTING=OFF
  fi
}

# Puts nvcc on PATH.
find_cuda() {
  local folder
  if ! have nvcc; then
    for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda $(compgen -G '/usr/local/cuda-*' | sort -rV); do
      [[ -n $folder && -x $folder/bin/nvcc ]] || continue
      export PATH="$folder/bin:$PATH"
      break
    done
  fi
  have nvcc || die "nvcc not found: install the CUDA Toolkit (12.4 or newer), then put it on PATH or set CUDA_HOME"
  CUDACXX=$(command -v nvcc)
  export CUDACXX
  note "CUDA Toolkit $(nvcc --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p') at $CUDACXX"
}

# --- GPU --------------------------------------------------------------------------------------------------------------

# The first GPU's architecture, 90 for compute capability 9.0; nothing if there is no GPU.
gpu_architecture() {
  have nvidia-smi || return 0
  { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } |
    sed -n '1s/^ *\([0-9]*\)\.\([0-9]\) *$/\1\2/p'
}

# Machine code for the GPU here, or the default list where there is none.
architectures_for_this_machine() {
  local architecture
  architecture=$(gpu_architecture)
  if [[ -n $architecture ]]; then echo "$architecture-real"; else echo "$default_architectures"; fi
}

# The default list, and the GPU here if the list has no machine code for it.
architectures_for_tests() {
  local architecture
  architecture=$(gpu_architecture)
  case "$architecture" in
    "" | 8? | 90) echo "$default_architectures" ;;
    *) echo "$architecture-real;$default_architectures" ;;
  esac
}

# --- Build ------------------------------------------------------------------------------------------------------------

# configure BUILD_DIR ARCHITECTURES OPTION...
configure() {
  local build_dir=$1 architectures=$2
  shift 2
  cmake -S "$repo_dir" -B "$build_dir" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    "-DCMAKE_CUDA_ARCHITECTURES=$architectures" "$@"
}

build() { cmake --build "$@"; }

# use_build_libraries BUILD_DIR: lets programs of a build that was carried here find what they link: BUILD_DIR/lib, and
# the CUDA libraries of Python packages (cuBLAS, for the benchmark's baseline).
use_build_libraries() {
  local found
  found=$(python3 - "$1/lib" <<'PYTHON'
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("nvidia")
roots = list(spec.submodule_search_locations) if spec else []
folders = [pathlib.Path(sys.argv[1])]
folders += sorted({p.parent for r in roots for p in pathlib.Path(r).glob("*/lib/libcublas*.so*")})
print(":".join(str(f) for f in folders if f.is_dir()))
PYTHON
  )
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found"
}
