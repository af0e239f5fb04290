#!/usr/bin/env bash
# The programs of labs 04 and 05 against lab 01's, as a user starts them: the same losses and the same
# checkpoint to the last bit, whatever the schedule and the number of stages, also when a run goes on
# with another number of stages; what cannot be is refused in one line.
#
# Usage: pipeline_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
programs=$(readlink -f -- "$1")
folder=$(mktemp -d -t pipeline-programs.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

"$programs/lab01_solution" --check-gradients >check.log || fail "$(cat check.log)"
(($(grep -c '^right' check.log) == 2)) || fail "two gradients to check: $(cat check.log)"
run 01 whole --batch 3 --steps 4
run 04 stages --ranks 3 --log-every 1 --batch 3 --steps 4 --timeline --split 1,2,3
same whole stages checkpoint-000004
for file in timeline.svg trace.json; do [[ -s stages/$file ]] || fail "no $file"; done
grep -q 'stage 2 |' stages.log || fail "no grid"

run 01 accumulated --batch 1 --accumulate 4 --steps 6
run 05 one_f_one_b --ranks 3 --log-every 1 --microbatches 4 --steps 6
same accumulated one_f_one_b checkpoint-000006
run 05 gpipe --ranks 2 --log-every 1 --microbatches 4 --schedule gpipe --split 4,2 --steps 6
same accumulated gpipe checkpoint-000006
run 05 parts --ranks 3 --log-every 1 --microbatches 4 --steps 3
run 05 parts --resume --ranks 6 --log-every 1 --steps 6
same accumulated parts checkpoint-000006

# goes_on LAB OUT RANKS STEPS TEXT: without another word a run keeps what TEXT shows, and its losses
# of every step.
goes_on() {
  "$programs/lab$1_solution" --resume --out "$2" --ranks "$3" --steps "$4" --cache cache \
    >"$2.log" 2>&1 || fail "$2:"$'\n'"$(cat "$2.log")"
  grep -q "$5" "$2.log" || fail "not '$5':"$'\n'"$(cat "$2.log")"
  (($(wc -l <"$2/metrics.jsonl") == $4)) || fail "$2: losses of some steps only"
}
goes_on 04 stages 3 6 '0: embedding, layer 0 | 1: layers 1-2 | 2: layers 3-5, head'
goes_on 05 gpipe 2 8 'layers 0-3 | 1: layers 4-5, head'
grep -q 'pipe    gpipe' gpipe.log || fail "another schedule: $(cat gpipe.log)"
goes_on 05 gpipe 3 10 '| 2: layer'

lab05=$programs/lab05_solution
printf 'stages 2 microbatches 2\n0: F0 F1 B0 B1\n1: F0 B0 F1\n' >missing.txt
printf 'stages 2 microbatches 2\n0: F0 F1 B0 B1\n1: F0 B0 F1 B1 F1\n' >doubled.txt
refused 'B1 is missing' "$lab05" --ranks 2 --microbatches 2 --schedule missing.txt --out x
refused 'F1 comes twice' "$lab05" --ranks 2 --microbatches 2 --schedule doubled.txt --out x
refused 'microbatches' "$lab05" --ranks 2 --microbatches 0 --out x
refused '7 ranks for 6 layers' "$lab05" --ranks 7 --out x
refused 'the model has 6' "$lab05" --ranks 2 --split 3,2 --out x
refused 'use these' "$lab05" --ranks 2 --accumulate 5 --out x
refused 'contradicts the run' "$lab05" --ranks 2 --microbatches 5 --resume --out parts
[[ ! -e x ]] || fail "a refused run has left its folder"

# Handouts have runs that deadlock in their first step: the same command must do the same a second time.
for attempt in first second; do
  if "$lab05" --ranks 3 --dim 48 --heads 4 --context 64 --threads 1 --story-tokens 0 --steps 2 --messages blocking \
    --schedule 1f1b --cache cache --out deadlocked >deadlock.log 2>&1; then fail "blocking 1F1B has no deadlock"; fi
  grep -q '^  circle: ' deadlock.log || fail "the $attempt attempt:"$'\n'"$(cat deadlock.log)"
done

# disagree WHAT OPTION VALUE VALUE: two ranks with different values of an option say so, each of them,
# instead of waiting for each other or training parts that do not fit together.
disagree() {
  local first second log
  local common=("$lab05" --world-size 2 --store "$folder/store-${1// /-}" --dim 48 --heads 4
    --microbatches 2 --out y --cache "$folder/cache")
  (cd second && exec "${common[@]}" --rank 1 "$2" "$4") >second.log 2>&1 &
  second=$!
  first=0
  (cd first && exec "${common[@]}" --rank 0 "$2" "$3") >first.log 2>&1 || first=$?
  if wait "$second" || ((first == 0)); then fail "ranks that disagree about $1 go on"; fi
  for log in first.log second.log; do
    grep -q "the ranks disagree about $1" "$log" || fail "$log:"$'\n'"$(cat "$log")"
  done
}

mkdir first second
for where in first:1f1b second:gpipe; do
  "$lab05" --simulate --print --stages 2 --microbatches 2 --schedule "${where#*:}" \
    >"${where%:*}/plan.txt"
done
disagree 'the option schedule' --schedule 1f1b gpipe
disagree 'the schedule' --schedule plan.txt plan.txt
disagree 'the option split' --split 3,3 2,4
disagree 'the option log-every' --log-every 5 6
echo "the programs of labs 04 and 05 agree with lab 01's"
