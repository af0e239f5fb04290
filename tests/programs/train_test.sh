#!/usr/bin/env bash
# The trainer, as a user starts it: the numbers of lab 06's program in every division of the work, runs that
# go on in any other, and checkpoints of which each is a whole model; what makes no sense together is
# refused in one line.
#
# Usage: train_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
programs=$(readlink -f -- "$1")
folder=$(mktemp -d -t train-programs.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

run 06 lab06 --log-every 1 --steps 6
run train whole --log-every 1 --steps 6
same lab06 whole checkpoint-000006

# With --overlap, gradients travel in buckets, and the losses are the same within rounding.
run train overlapped --overlap --log-every 1 --steps 6
near whole overlapped
run train overlapped_waves --dp 2 --pp 1 --overlap --microbatches 1 --waves 3 --log-every 1 --steps 6
near whole overlapped_waves
for shown in report.html:'on its way: ' timeline.svg:network trace.json:'"collective 1"'; do
  grep -q "${shown#*:}" "overlapped/${shown%%:*}" || fail "no buckets in ${shown%%:*}"
  if grep -q "${shown#*:}" "whole/${shown%%:*}"; then fail "buckets in ${shown%%:*}"; fi
done

# Replicas in shards: six, unless somebody says how many. They validate as often as others, and tell stories.
for stage in 1 2 3; do
  run train stage$stage --shard $stage --log-every 1 --steps 6 --validate-every 3 --story-tokens 20 \
    --checkpoint-every 3
  near whole stage$stage
  grep -q "6 ranks, each with a shard of .*ZeRO $stage" stage$stage.log || fail "$(cat stage$stage.log)"
  grep -q 'Once upon a time' stage$stage.log || fail "no story: $(cat stage$stage.log)"
  for file in config.ini metrics.jsonl samples.jsonl report.html timeline.svg trace.json loss.svg; do
    [[ -s stage$stage/$file ]] || fail "stage $stage: no $file"
  done
done
diff <(grep -o '"val_loss":[0-9.]\{6\}' stage1/metrics.jsonl) \
  <(grep -o '"val_loss":[0-9.]\{6\}' stage3/metrics.jsonl) || fail "another validation loss in stage 3"

# A run goes on in shards, without them, in another stage and with another number of ranks.
run train other --shard 3 --log-every 1 --steps 2
run train other --resume --ranks 3 --log-every 1 --steps 3
grep -q '3 ranks, each with a shard of weights' other.log || fail "$(cat other.log)"
run train other --resume --shard 0 --dp 1 --pp 3 --log-every 1 --steps 4
run train other --resume --shard 2 --pp 1 --dp 2 --log-every 1 --steps 5
run train other --resume --ranks 1 --log-every 1 --steps 6
near whole other
run train tied --shard 3 --tied --ranks 4 --optimizer sgd --log-every 1 --steps 2
run train tied --shard 0 --resume --ranks 1 --log-every 1 --steps 3
run train tied_alone --tied --ranks 1 --microbatches 4 --optimizer sgd --log-every 1 --steps 3
near tied tied_alone

# The checkpoint of a run in shards is that of a model like any other.
"$programs/generate" --checkpoint stage3 --max-tokens 20 >story.txt 2>&1 || fail "$(cat story.txt)"
"$programs/convert" --from stage3 --to stage3.bin >convert.log 2>&1 || fail "$(cat convert.log)"
"$programs/convert" --from stage3 --to whole_again >convert.log 2>&1 || fail "$(cat convert.log)"
cmp <(numbers stage3/checkpoint-000006 model) <(numbers whole_again model) ||
  fail "convert has changed weights"

train=$programs/train_solution
small=(--dim 48 --heads 4 --context 64 --cache cache --out x)
refused 'no other pipeline to send gradients to' "$train" "${small[@]}" --ranks 3 --overlap
refused 'only replicas of a whole model' "$train" "${small[@]}" --shard 3 --pp 2
refused 'only replicas of a whole model' "$train" --resume --out whole --steps 9 --shard 1
refused 'there are 4 ranks' "$train" "${small[@]}" --shard 3 --dp 3 --ranks 4
refused 'leave one out' "$train" "${small[@]}" --shard 1 --overlap
refused 'does not lie between 0 and 3' "$train" "${small[@]}" --shard 4
refused 'leave it out' "$train" "${small[@]}" --shard 2 --split 3,3
refused 'no shards in bfloat16' "$train" "${small[@]}" --shard 2 --precision bfloat16
[[ ! -e x ]] || fail "a refused run has left its folder"
echo "the trainer agrees with lab 06's program in every division of the work"
