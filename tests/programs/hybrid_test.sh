#!/usr/bin/env bash
# The program of lab 06 against those of labs 01 and 05, as a user starts it: the same bits where that is
# promised, nearly the same numbers elsewhere; a run goes on in another mesh; its files are complete; what
# cannot be is refused in one line, and nothing is overwritten.
#
# Usage: hybrid_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
programs=$(readlink -f -- "$1")
folder=$(mktemp -d -t hybrid-programs.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# One pipeline is lab 05; one process is lab 01.
run 05 lab05 --ranks 3 --log-every 1 --microbatches 4 --steps 4
run 06 one_pipeline --dp 1 --pp 3 --log-every 1 --microbatches 4 --steps 4
same lab05 one_pipeline checkpoint-000004
run 01 lab01 --batch 1 --accumulate 6 --steps 6
run 06 one_process --ranks 1 --log-every 1 --steps 6
same lab01 one_process checkpoint-000006

# Two pipelines read what one process reads; it does not matter in how many stages.
run 06 whole --log-every 1 --steps 6 --validate-every 3 --story-tokens 20 --checkpoint-every 3
near one_process whole
run 06 two_by_two --dp 2 --pp 2 --schedule gpipe --log-every 1 --steps 6
same_losses whole two_by_two
for file in config.ini metrics.jsonl samples.jsonl report.html timeline.svg trace.json loss.svg; do
  [[ -s whole/$file ]] || fail "no $file"
done
for text in 'Once upon a time' 'p1 stage 2'; do
  grep -q "$text" whole/report.html || fail "'$text' is not in the report"
done

# A run goes on in any mesh, with the numbers of one that did not stop.
run 06 parts --log-every 1 --steps 3
run 06 parts --resume --log-every 1 --steps 6
same whole parts checkpoint-000006
run 06 other --log-every 1 --steps 3
run 06 other --resume --dp 1 --pp 2 --log-every 1 --steps 4
run 06 other --resume --dp 3 --pp 1 --log-every 1 --steps 5
run 06 other --resume --ranks 1 --log-every 1 --steps 6
near whole other

# What is not given stays as it was: the split, how often the loss is logged. Another number of stages
# has another split.
lab06=$programs/lab06_solution
run 06 uneven --dp 1 --pp 3 --split 4,1,1 --log-every 2 --steps 2
"$lab06" --resume --out uneven --steps 6 --cache cache >uneven.log 2>&1 || fail "$(cat uneven.log)"
grep -q '0-3 | 1: layer 4 | 2: layer 5, head' uneven.log || fail "stages: $(cat uneven.log)"
(($(wc -l <uneven/metrics.jsonl) == 4)) || fail "steps 1, 2, 4, 6: $(cat uneven/metrics.jsonl)"
"$lab06" --resume --out uneven --steps 7 --pp 2 --cache cache >uneven.log 2>&1 ||
  fail "$(cat uneven.log)"
grep -q 'mesh    1 x 2 stages' uneven.log || fail "stages: $(cat uneven.log)"
refused 'split 5,1: 2 stages, but there are 3' "$lab06" --resume --out uneven --steps 9 --pp 3 \
  --split 5,1
run 06 uneven --resume --steps 8 --dp 1 --pp 3 --precision float32 --device cpu

# A file of options makes the same run.
run 06 again --config whole/config.ini --log-every 1 --validate-every 0 --story-tokens 0
same whole again checkpoint-000006

small=(--dim 48 --heads 4 --context 64 --cache cache --out x)
refused '6 ranks, but the number of ranks is 4' "$lab06" "${small[@]}" --dp 2 --pp 3 --ranks 4
refused '7 ranks for 6 layers' "$lab06" "${small[@]}" --dp 1 --pp 7
refused 'use these' "$lab06" "${small[@]}" --accumulate 5
refused 'takes 6 microbatches a step' "$lab06" --resume --out whole --steps 9 --dp 4 --pp 1
refused 'contradicts the run' "$lab06" --resume --out whole --steps 9 --dim 96
printf 'stages 2 microbatches 3\n0: F0 F1 F2 B0 B1 B2\n1: F0 B0 F1 B1 F2 B2\n' >two_stages.txt
refused 'has 2 stages; 3 are wanted' "$lab06" "${small[@]}" --schedule two_stages.txt
refused 'nowhere.ini' "$lab06" "${small[@]}" --config nowhere.ini
[[ ! -e x ]] || fail "a refused run has left its folder"
for options in '--help' '--simulate' "${small[*]} --ranks 1 --steps 1 --validate-every 0"; do
  refused 'cannot write' bash -c "'$programs/lab05_solution' $options >/dev/full"
  rm -rf x
done
refused 'not empty' "$lab06" --dim 48 --heads 4 --context 64 --out whole

# refuses_to_load WORDS: a resume of a copy of `whole` that was damaged ends with these words.
refuses_to_load() {
  local before
  before=$(find damaged -type f -exec sha256sum {} + | sort)
  if "$lab06" --resume --out damaged --steps 9 --cache cache >damaged.log 2>&1; then
    fail "resumed although: $1"
  fi
  grep -q -- "$1" damaged.log || fail "not '$1':"$'\n'"$(cat damaged.log)"
  [[ $(find damaged -type f -exec sha256sum {} + | sort) == "$before" ]] || fail "$1: files changed"
  rm -rf damaged
}
part=checkpoint-000006/model-00002-of-00003.safetensors
cp -r whole damaged && rm "damaged/$part"
refuses_to_load 'model-00002-of-00003.safetensors is missing'
cp -r whole damaged && printf x | dd of="damaged/$part" bs=1 seek=9000 conv=notrunc status=none
refuses_to_load 'model-00002-of-00003.safetensors is damaged'

# Two runs do not write one folder.
cp -r whole busy
exec {lock}<busy
flock "$lock"
refused 'another run is writing into this folder' "$lab06" --resume --ranks 1 --steps 9 --cache cache \
  --out "$folder/busy"
echo "the program of lab 06 agrees with those of labs 01 and 05"
