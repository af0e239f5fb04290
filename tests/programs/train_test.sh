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

run 06 lab06 --log-every 1 --steps 6 --lr 0.0016 --embedding-scale 10  # as the trainer does
run train whole --log-every 1 --steps 6
same lab06 whole checkpoint-000006

# A process that uses no GPU loads nothing of CUDA, neither at its start nor later.
LD_DEBUG=files LD_DEBUG_OUTPUT=loaded run train on_cpu --ranks 2 --steps 1
(($(grep -l 'file=libgloo' loaded.* | wc -l) >= 3)) || fail "no record of what the launcher and two ranks load"
if grep -hE 'file=[^ ]*lib(cuda|cublas|nccl)' loaded.* >cuda.log; then fail "on the CPU: $(head -n 1 cuda.log)"; fi

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

# Stages of several ranks, which divide every layer: twelve ranks, and three without pipelines.
run train sliced --tp 2 --log-every 1 --steps 6 --validate-every 3 --story-tokens 20 --checkpoint-every 3
near whole sliced
grep -q '2 ranks divide every layer' sliced.log || fail "$(cat sliced.log)"
for text in 'Once upon a time' 'p1 stage 2 slice 1' '2 x 3 x 2'; do
  grep -q "$text" sliced/report.html || fail "'$text' is not in the report"
done
diff <(grep -o '"val_loss":[0-9.]\{6\}' stage1/metrics.jsonl) \
  <(grep -o '"val_loss":[0-9.]\{6\}' sliced/metrics.jsonl) || fail "another validation loss with --tp"
run train alone --dp 1 --pp 1 --tp 3 --heads 6 --log-every 1 --steps 2
run train heads --ranks 1 --heads 6 --log-every 1 --steps 2
near heads alone
run train mesh --tp 2 --log-every 1 --steps 2
run train mesh --resume --log-every 1 --steps 3
grep -q '2 ranks divide every layer' mesh.log || fail "$(cat mesh.log)"
run train mesh --resume --tp 1 --log-every 1 --steps 4
run train mesh --resume --shard 3 --pp 1 --dp 2 --log-every 1 --steps 5
run train mesh --resume --ranks 1 --shard 0 --log-every 1 --steps 6
near whole mesh

# Memory: as planned where nothing is gathered; a limit that is too low is refused before the start, or ends
# the run where a tensor would exceed it.
sed -n 's/.*memory *\([0-9.]*\) MB.*planned: \([0-9.]*\) MB.*/\1 \2/p' whole.log |
  awk '{ exit !($1 >= $2 && $1 < 1.05 * $2) }' || fail "not as planned: $(grep memory whole.log)"
for text in '<h2>Memory' 'p1 stage 2</th>' 'optimizer'; do
  grep -q "$text" whole/report.html || fail "'$text' is not in the report"
done
run train limited --shard 3 --ranks 3 --steps 2 --memory-limit 10
if "$programs/train_solution" --resume --out limited --steps 4 --memory-limit 8 --cache cache >limited.log 2>&1; then
  fail "a checkpoint within 8 MB: $(cat limited.log)"
fi
grep -q 'out of memory: .* would exceed the limit of 8.0 MB; in use: weights' limited.log ||
  fail "$(cat limited.log)"

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
refused 'the number of ranks is 4' "$train" "${small[@]}" --shard 3 --dp 3 --ranks 4
refused 'leave one out' "$train" "${small[@]}" --shard 1 --overlap
refused 'does not lie between 0 and 3' "$train" "${small[@]}" --shard 4
refused 'leave it out' "$train" "${small[@]}" --shard 2 --split 3,3
refused 'no shards in bfloat16' "$train" "${small[@]}" --shard 2 --precision bfloat16
refused '4 heads cannot be divided equally among 3 ranks' "$train" "${small[@]}" --tp 3
refused '1 kv_heads cannot be divided' "$train" "${small[@]}" --kv-heads 1 --tp 2
refused '33 channels of hidden_dim cannot be divided' "$train" "${small[@]}" --hidden 33 --tp 2
refused 'ranks for 6 layers' "$train" "${small[@]}" --dp 1 --pp 7 --tp 2
refused 'on 2 ranks each are 12 ranks, but the number of ranks is 6' "$train" "${small[@]}" --tp 2 --dp 2 --pp 3 --ranks 6
refused 'leave it or --tp out' "$train" "${small[@]}" --tp 2 --overlap
refused 'float32 only' "$train" "${small[@]}" --tp 2 --precision bfloat16
refused 'memory-limit 4: a rank of stage 0 needs about 6 MB' "$train" "${small[@]}" --memory-limit 4
refused 'memory-limit 7: a rank needs about 8 MB' "$train" "${small[@]}" --shard 3 --ranks 3 --memory-limit 7
[[ ! -e x ]] || fail "a refused run has left its folder"
echo "the trainer agrees with lab 06's program in every division of the work"
