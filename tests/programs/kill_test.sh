#!/usr/bin/env bash
# A run that is killed at any moment (a rank, the launcher, or all at once, as in a power cut) leaves no
# process behind, and resumes from its last complete checkpoint, or from the start if it has none, with
# the losses and the weights of an undisturbed run, to the last bit.
#
# Usage: kill_test.sh FOLDER_OF_PROGRAMS [KILLS [SEED [OPTION...]]]; OPTION: how the ranks divide the work
set -euo pipefail
program=$(readlink -f -- "$1")/train_solution
kills=${2:-10}
seed=${3:-$RANDOM}
division=("${@:4}")
((${#division[@]})) || division=(--dp 2 --pp 2)
folder=$(mktemp -d -t kill-test.XXXXXX)
trap 'pkill -9 -f -- "--out $folder" || true; rm -rf "$folder"' EXIT
RANDOM=$seed
steps=10
kills_a_run=4

fail() {
  printf 'failed (seed %s): %s\n' "$seed" "$*" >&2
  exit 1
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

options=("${division[@]}" --dim 48 --heads 4 --context 64 --layers 2 --story-tokens 0
  --validate-every 0 --validation-batches 2 --checkpoint-every 2 --log-every 1 --decay constant
  --warmup 0 --threads 1 --cache "$folder/cache" --steps "$steps")

# Ranks and launcher of the run in folder $1.
processes() { pgrep -f -- "--out $1( |\$)" || true; }

wait_until_gone() {
  local end=$(($(milliseconds) + 10000))
  while [[ -n $(processes "$1") ]]; do
    (($(milliseconds) < end)) || fail "10 s after $2 was killed there are still: $(pgrep -af -- "--out $1")"
    sleep 0.02
  done
}

# The newest complete checkpoint of a run: its number, or nothing.
newest() {
  { find "$1" -maxdepth 1 -name 'checkpoint-*' -printf '%f\n' 2>/dev/null || true; } | sort | tail -n 1
}

# same A B: losses of all steps, weights and optimizer.
same() {
  local file name
  cmp <(grep -o '"step":[0-9]*,"loss":[^,]*' "$1/metrics.jsonl") \
    <(grep -o '"step":[0-9]*,"loss":[^,]*' "$2/metrics.jsonl") || fail "other losses than undisturbed"
  for file in "$1/checkpoint-0000$steps"/*.safetensors; do
    name=$(basename "$file")
    cmp "$file" "$2/checkpoint-0000$steps/$name" || fail "another $name than undisturbed"
  done
}

# Kills somebody of the run in folder $1, whose launcher is $2; says whom.
kill_somebody() {
  local all=() ranks=() victim
  mapfile -t all < <(processes "$1")
  for process in "${all[@]}"; do [[ $process == "$2" ]] || ranks+=("$process"); done
  case $((RANDOM % 4)) in
    0) kill -9 "$2" 2>/dev/null && echo "the launcher" ;;
    1) ((${#all[@]})) && kill -9 "${all[@]}" 2>/dev/null && echo "everybody" ;;
    *)
      ((${#ranks[@]})) || return 1
      victim=${ranks[RANDOM % ${#ranks[@]}]}
      kill -9 "$victim" 2>/dev/null && echo "a rank"
      ;;
  esac
}

before=$(milliseconds)
"$program" "${options[@]}" --out "$folder/undisturbed" >"$folder/log" 2>&1 ||
  fail "$(cat "$folder/log")"
duration=$(($(milliseconds) - before))

killed=0
run=0
while ((killed < kills)); do
  run=$((run + 1))
  out=$folder/run-$run
  killed_here=0
  while true; do
    resume=()
    had=$(newest "$out")
    if [[ -e $out/config.ini ]]; then resume=(--resume); else rm -rf "$out"; fi
    "$program" "${options[@]}" --out "$out" "${resume[@]}" >"$folder/log" 2>&1 &
    launcher=$!
    victim=
    if ((killed < kills && killed_here < kills_a_run)); then
      # Not a wait for something: the moment is meant to be any.
      moment=$((RANDOM % duration))
      sleep "$((moment / 1000)).$(printf '%03d' $((moment % 1000)))"
      victim=$(kill_somebody "$out" "$launcher") || victim=
    fi
    status=0
    wait "$launcher" 2>/dev/null || status=$?
    if [[ -z $victim ]]; then
      ((status == 0)) || fail "an undisturbed resume ended with $status: $(cat "$folder/log")"
      break
    fi
    killed=$((killed + 1))
    killed_here=$((killed_here + 1))
    wait_until_gone "$out" "$victim"
    [[ ! $(newest "$out") < $had ]] || fail "$victim was killed, and checkpoint $had is gone"
    ((status != 0)) || break # it had finished before
  done
  same "$folder/undisturbed" "$out"
  [[ -s $out/report.html ]] || fail "no report"
done

# The launcher can do that automatically.
out=$folder/by-itself
"$program" "${options[@]}" --out "$out" --max-restarts 3 >"$folder/log" 2>&1 &
launcher=$!
until [[ -n $(newest "$out") ]]; do
  kill -0 "$launcher" 2>/dev/null || fail "it ended before its first checkpoint: $(cat "$folder/log")"
  sleep 0.01
done
victim=$(processes "$out" | grep -vx "$launcher" | tail -n 1)
if [[ -n $victim ]] && kill -9 "$victim" 2>/dev/null; then
  wait "$launcher" || fail "--max-restarts: $(cat "$folder/log")"
  grep -q 'restart 1 of 3: from ' "$folder/log" || fail "no restart: $(cat "$folder/log")"
else
  wait "$launcher" || fail "$(cat "$folder/log")"
fi
same "$folder/undisturbed" "$out"
echo "$killed kills in $run runs: every run went on with the same bits"
