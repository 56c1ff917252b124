#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fails, and names the files, if a GPU record in docs/verification/ was made with other sources than those here, if a
# record says that something failed, or if there is no record.
#
# usage: scripts/check_evidence.sh [--root DIR]
#   --root DIR  the source tree; by default the one that holds this script
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case "${1:-}" in
  -h | --help) print_help; exit ;;
esac
exec python3 "$repo_dir/scripts/check_evidence.py" "$@"
