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

run 01 whole --batch 3 --steps 4
run 04 stages --ranks 3 --log-every 1 --batch 3 --steps 4 --timeline
same whole stages checkpoint-000004
for file in timeline.svg trace.json; do [[ -s stages/$file ]] || fail "no $file"; done
grep -q 'stage 2 |' stages.log || fail "no grid"

run 01 accumulated --batch 1 --accumulate 4 --steps 6
run 05 one_f_one_b --ranks 3 --log-every 1 --microbatches 4 --steps 6
same accumulated one_f_one_b checkpoint-000006
run 05 gpipe --ranks 2 --log-every 1 --microbatches 4 --schedule gpipe --steps 6
same accumulated gpipe checkpoint-000006
run 05 parts --ranks 3 --log-every 1 --microbatches 4 --steps 3
run 05 parts --resume --ranks 6 --log-every 1 --steps 6
same accumulated parts checkpoint-000006

lab05=$programs/lab05_solution
printf 'stages 2 microbatches 2\n0: F0 F1 B0 B1\n1: F0 B0 F1\n' >missing.txt
printf 'stages 2 microbatches 2\n0: F0 F1 B0 B1\n1: F0 B0 F1 B1 F1\n' >doubled.txt
refused 'B1 is missing' "$lab05" --ranks 2 --microbatches 2 --schedule missing.txt --out x
refused 'F1 comes twice' "$lab05" --ranks 2 --microbatches 2 --schedule doubled.txt --out x
refused 'microbatches' "$lab05" --ranks 2 --microbatches 0 --out x
refused '7 ranks for 6 layers' "$lab05" --ranks 7 --out x
refused 'the model has 6' "$lab05" --ranks 2 --split 3,2 --out x
refused 'say these' "$lab05" --ranks 2 --accumulate 5 --out x
refused 'contradicts the run' "$lab05" --ranks 2 --microbatches 5 --resume --out parts
[[ ! -e x ]] || fail "a refused run has left its folder"

# disagree WHAT OPTION VALUE VALUE: two ranks with different values of an option say so, each of them,
# instead of waiting for each other or training parts that do not fit together.
disagree() {
  local first second log
  local common=("$lab05" --world-size 2 --store "store-${2#--}" --dim 48 --heads 4
    --microbatches 2 --out y --cache cache)
  "${common[@]}" --rank 1 "$2" "$4" >second.log 2>&1 &
  second=$!
  first=0
  "${common[@]}" --rank 0 "$2" "$3" >first.log 2>&1 || first=$?
  if wait "$second" || ((first == 0)); then fail "ranks that disagree about $1 go on"; fi
  for log in first.log second.log; do
    grep -q "the ranks disagree about $1" "$log" || fail "$log:"$'\n'"$(cat "$log")"
  done
}

disagree 'the schedule' --schedule 1f1b gpipe
disagree 'the stages' --split 3,3 2,4
disagree 'the option log_every' --log-every 5 6
echo "the programs of labs 04 and 05 agree with lab 01's"
