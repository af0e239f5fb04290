#!/usr/bin/env bash
# Ctrl-C in the middle of a step of the default model: the run ends in good order with a checkpoint, from
# which it goes on. In no thread that computes may a signal be handled: with oneDNN's products for AVX-512
# the frame of a handler would overwrite the heap (common/run/launch/signal_thread.h).
#
# Usage: interrupt_test.sh FOLDER_OF_PROGRAMS [TRIES]
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
program=$(readlink -f -- "$1")/train_solution
tries=${2:-4}
folder=$(mktemp -d -t interrupt-test.XXXXXX)
launcher=
trap '[[ -z $launcher ]] || kill -9 "$launcher" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
# A shell without job control lets what it starts in the background ignore SIGINT.
set -m

# The number of threads of process $1 that SIGINT or SIGTERM may interrupt.
open_threads() {
  local status mask count=0
  for status in /proc/"$1"/task/*/status; do
    mask=$(sed -n 's/^SigBlk:\s*//p' "$status")
    (((0x$mask & 0x4002) == 0x4002)) || count=$((count + 1))
  done
  echo "$count"
}

# interrupt OUT SIGNAL WHOM OPTION...: starts a run or goes on with it, and ends it in its second step. WHOM: the
# launcher, or one rank.
interrupt() {
  local out=$1 signal=$2 whom=$3 status=0 log=$1.log process
  shift 3
  : >"$log"
  "$program" --out "$out" --steps 1000 --log-every 1 --checkpoint-every 0 --validate-every 0 \
    --validation-batches 1 --story-tokens 0 --cache cache --decay constant --warmup 0 "$@" \
    >"$log" 2>&1 &
  launcher=$!
  until grep -q '^\(\[0\] \)\?step [1-9]' "$log"; do
    kill -0 "$launcher" 2>/dev/null || fail "it ended before its first step: $(cat "$log")"
    sleep 0.02
  done
  for process in $(pgrep -P "$launcher" || echo "$launcher"); do
    (($(open_threads "$process") == 1)) || fail "signals may interrupt threads that compute"
  done
  sleep "0.$((RANDOM % 4))$((RANDOM % 10))" # somewhere in the step
  if [[ $whom == rank ]]; then
    kill -"$signal" "$(pgrep -P "$launcher" | tail -n 1)"
  else
    kill -"$signal" "$launcher"
  fi
  wait "$launcher" || status=$?
  launcher=
  ((status == 128 + $(kill -l "$signal"))) || fail "ended with $status: $(cat "$log")"
  grep -q 'stopped after step' "$log" || fail "no word of the end: $(cat "$log")"
  compgen -G "$out/checkpoint-*" >/dev/null || fail "no checkpoint: $(cat "$log")"
}

goes_on() { grep -q 'resuming after step' "$1.log" || fail "$1 did not go on: $(cat "$1.log")"; }

interrupt alone INT launcher --ranks 1
for ((try = 1; try < tries; ++try)); do
  interrupt alone INT launcher --ranks 1 --resume
  goes_on alone
done
interrupt stages INT launcher --dp 1 --pp 3
interrupt stages TERM launcher --resume
goes_on stages
interrupt stages TERM rank --resume
goes_on stages
interrupt shards INT launcher --shard 3 --dp 3
interrupt shards TERM rank --resume
goes_on shards
echo "$((tries + 5)) runs of the default model were interrupted and had a checkpoint to go on from"
