#!/usr/bin/env bash
# Runs a test that needs a GPU; without one it is skipped (exit code 77), and says why.
#
# usage: run_on_gpu.sh RANK_PROGRAM COMMAND...
#   RANK_PROGRAM --device names the GPU, or says why there is none.
set -euo pipefail
rank_program=$1
shift
code=0
"$rank_program" --device || code=$?
[[ $code == 0 ]] || exit "$code"
exec "$@"
