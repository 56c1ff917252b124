#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds libcuflash with its tests into build/ and runs the whole test suite. Tests that need a
# GPU are reported as skipped, with the reason, where there is none.
#
# usage: scripts/test.sh [OPTION]...
#   --quick          leaves out the tests that build other projects with the installed library
#   --level N        how much the tests cover (CUFLASH_TEST_LEVEL): 1 a few minutes, 2 more, 3 everything; by default 1
#   --build-dir DIR  by default build
#   --arch LIST      CUDA architectures; by default "80-real;90", and that of the GPU here if it needs another one
#   --strict         treats compiler warnings as errors, as CI does
#
# Needs a C++ compiler, Python and the CUDA Toolkit. The rest is installed: with apt-get where that is possible, else
# with pip into .venv and from source into .deps.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_dir=$repo_dir/build
architectures=""
level=1
strict=OFF
selection=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --quick) selection=(--exclude-regex '^packaging\.package$'); shift ;;
    --level) level=$(value_of "$@"); shift 2 ;;
    --build-dir) build_dir=$(realpath -m -- "$(value_of "$@")"); shift 2 ;;
    --arch) architectures=$(value_of "$@"); shift 2 ;;
    --strict) strict=ON; shift ;;
    -h | --help) print_help; exit ;;
    *) die "unknown option $1; see --help" ;;
  esac
done
[[ $level =~ ^[123]$ ]] || die "--level must be 1, 2 or 3"

install_build_tools
install_test_libraries
find_cuda
architectures=${architectures:-$(architectures_for_tests)}

step "Building for $architectures into $build_dir"
configure "$build_dir" "$architectures" -DCUFLASH_BUILD_TESTS=ON -DCUFLASH_BUILD_BENCHMARKS=ON \
  -DCUFLASH_BUILD_EXAMPLES=ON -DCUFLASH_WARNINGS_AS_ERRORS="$strict"
build "$build_dir"

step "Tests, level $level"
result=0
CUFLASH_TEST_LEVEL=$level ctest --test-dir "$build_dir" --output-on-failure --no-tests=error --parallel "$(nproc)" \
  --output-junit "$build_dir/tests.xml" "${selection[@]}" || result=$?

step "Summary"
python3 "$repo_dir/scripts/test_summary.py" "$build_dir/tests.xml" || result=1
exit $result
