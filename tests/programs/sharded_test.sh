#!/usr/bin/env bash
# The program of lab 09 against lab 02's, as a user starts it: nearly the same losses in every stage; a
# run goes on with another number of ranks and in another stage; what does not fit is refused in one line.
#
# Usage: sharded_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
programs=$(readlink -f -- "$1")
folder=$(mktemp -d -t sharded-programs.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# megabytes OUT KIND: what rank 0 held at its peak.
megabytes() { grep -o "$2 [0-9.]* MB" "$1.log" | grep -o '[0-9.]*' || fail "no $2 in $1.log"; }

run 02 lab02 --ranks 3 --accumulate 2 --log-every 1 --steps 6
for stage in 0 1 2 3; do
  run 09 stage$stage --ranks 3 --accumulate 2 --log-every 1 --steps 6 --shard $stage
  near lab02 stage$stage
done
for step in 'stage0 stage1 optimizer' 'stage1 stage2 gradients' 'stage2 stage3 weights'; do
  read -r more less kind <<<"$step"
  awk "BEGIN { exit !($(megabytes "$more" "$kind") > $(megabytes "$less" "$kind")) }" ||
    fail "$less needs no less memory for $kind than $more"
done

# A run goes on with another number of ranks and in another stage.
run 09 other --ranks 3 --accumulate 2 --log-every 1 --steps 2
run 09 other --resume --ranks 2 --shard 2 --log-every 1 --steps 4
run 09 other --resume --ranks 6 --shard 1 --log-every 1 --steps 5
run 09 other --resume --ranks 1 --log-every 1 --steps 6
near stage3 other

lab09=$programs/lab09_solution
refused 'would exceed the limit of 60.0 MB; in use: weights' "$lab09" --ranks 1 --shard 0 \
  --memory-limit 60 --out limited --cache cache
refused 'shard' "$lab09" --ranks 1 --shard 4 --out limited --cache cache
[[ ! -e limited/metrics.jsonl ]] || fail "a refused run has left something"
