#!/usr/bin/env bash
# The program of lab 06 under the launchers of others: mpirun and torchrun, as far as they are installed.
# The ranks find each other, train to the same bits as under the workbook's own launcher, and say why a
# job cannot go on.
#
# Usage: launchers_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../programs/helpers.sh"
programs=$(readlink -f -- "$1")
lab06=$programs/lab06_solution
folder=$(mktemp -d -t launchers-test.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset OMP_NUM_THREADS

options=(--dp 2 --pp 2 --dim 48 --heads 4 --context 64 --story-tokens 0 --validate-every 0
  --threads 1 --validation-batches 2 --checkpoint-every 0 --decay constant --warmup 0
  --log-every 1 --cache cache --steps 5)

# trains NAME COMMAND...: the launcher's command, which starts four ranks of what follows.
trains() {
  local name=$1
  shift
  timeout -k 10 120 "$@" "$lab06" "${options[@]}" --out "$name" >"$name.log" 2>&1 ||
    fail "$name:"$'\n'"$(cat "$name.log")"
  same own "$name" checkpoint-000005
}

# refuses PATTERN COMMAND...: the same, but the ranks refuse the job.
refuses() {
  local pattern=$1
  shift
  if timeout -k 10 120 "$@" >refused.log 2>&1; then fail "accepted: $*"; fi
  grep -q -- "$pattern" refused.log || fail "not '$pattern':"$'\n'"$(cat refused.log)"
  [[ ! -e x ]] || fail "a refused run has left its folder"
}

tried=()
if type mpirun >/dev/null 2>&1; then
  trains own # the workbook's
  mpi=(mpirun --allow-run-as-root --oversubscribe)
  trains mpirun "${mpi[@]}" -n 4
  refuses 'there are 3' "${mpi[@]}" -n 3 "$lab06" "${options[@]}" --out x
  # Two programs in one job (":"): another value of an option on two of the ranks.
  refuses 'the ranks disagree about the option seed: rank 0 has 1, rank 2 has 7' "${mpi[@]}" \
    -n 2 "$lab06" "${options[@]}" --out x : -n 2 "$lab06" "${options[@]}" --out x --seed 7
  tried+=(mpirun)
fi
if type torchrun >/dev/null 2>&1; then
  [[ -e own ]] || trains own
  trains torchrun torchrun --standalone --no-python --nproc-per-node 4
  tried+=(torchrun)
fi
if ((${#tried[@]} == 0)); then
  echo "skipped: neither mpirun (Debian: openmpi-bin) nor torchrun (pip install torch) is installed"
  exit 77
fi
echo "the same bits as under the workbook's own launcher: ${tried[*]}"
