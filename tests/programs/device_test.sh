#!/usr/bin/env bash
# The programs of the labs with --device cuda against themselves with --device cpu: nearly the same
# losses; the same bits when repeated; a run that goes on on the other device; what cannot be is
# refused in one line. On a GPU, or on its emulation with a much smaller model.
#
# Usage: device_test.sh FOLDER_OF_PROGRAMS emulated|solution [PART]
#   PART: 01 to 06, 08 or 09, the program of that lab; train; or rest. All of them if it is missing.
set -euo pipefail
# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/helpers.sh"
programs=$(readlink -f -- "$1")
whose=$2
part=${3:-}
folder=$(mktemp -d -t device-programs.XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

if [[ $whose == solution ]]; then
  chosen=$("$programs/devices")
  echo "$chosen"
  [[ $chosen != CPU:* ]] || exit 77
  steps=200
  size=(--dim 96 --heads 4 --layers 3 --context 64 --story-tokens 20)
else
  steps=3
  size=(--dim 16 --heads 2 --layers 3 --context 12 --hidden 24 --story-tokens 2)
fi

# on DEVICE LAB OUT OPTION...
on() {
  local device=$1 lab=$2 out=$3
  shift 3
  run "$lab" "$out" "${size[@]}" --device "$device" "$@"
}

# near A B: losses differ by 1e-4 at most in the first 50 steps, by 1e-3 later, because rounding grows with
# the steps. (Between two kinds of CPU instructions, it made 6e-8 and 4e-6 of it in 50 and 200 steps.)
near() {
  paste <(grep -o '"loss":[^,]*' "$1/metrics.jsonl") <(grep -o '"loss":[^,]*' "$2/metrics.jsonl") |
    tr -d '":a-z' |
    awk -v names="$1 and $2" '
      { d = $1 > $2 ? $1 - $2 : $2 - $1; n++ }
      NF != 2 || !(d <= 1e-3) || (n <= 50 && !(d <= 1e-4)) { bad = 1 }
      d > most { most = d; step = n }
      END { printf "%s: losses differ by %.1e at most (line %d of %d)\n", names, most, step, n; exit bad || n < 2 }' ||
    fail "$1 and $2: losses that are not near"
}

# compare LAB[.VARIANT] OPTION...: a lab's program on both devices, and on the GPU once more. Unless another
# part is asked for.
compare() {
  local name=$1 lab=${1%.*}
  [[ -z $part || $part == "$lab" ]] || return 0
  shift
  set -- "$@" --steps "$steps"
  on cpu "$lab" "cpu$name" "$@"
  on cuda "$lab" "cuda$name" "$@"
  near "cpu$name" "cuda$name"
  on cuda "$lab" "again$name" "$@"
  same "cuda$name" "again$name" "checkpoint-$(printf '%06d' "$steps")"
}

compare 01 --batch 2 --accumulate 2
compare 02 --ranks 3 --batch 1 --log-every 1
compare 03 --ranks 2 --batch 1 --every 1
compare 04 --ranks 3 --batch 2 --log-every 1
compare 05 --ranks 3 --batch 1 --microbatches 4 --log-every 1
compare 06 --dp 2 --pp 3 --log-every 1
compare 08 --ranks 3 --batch 1 --log-every 1 --bucket-kb 16 --first-bucket-kb 4
compare 09.whole_weights --ranks 3 --batch 1 --log-every 1 --shard 2
compare 09 --ranks 3 --batch 1 --log-every 1 --shard 3
compare train --dp 2 --pp 3 --log-every 1
compare train.overlap --dp 2 --pp 3 --log-every 1 --overlap
compare train.shards --ranks 3 --log-every 1 --shard 3

[[ -z $part || $part == rest ]] || exit 0

# A checkpoint is not that of a device.
on cuda 01 moved --batch 2 --accumulate 2 --steps "$steps"
on cpu 01 moved --resume --steps $((steps + 1))
on cuda 01 moved --resume --steps $((steps + 2))

# Without a word about it, a run stays on its device; where that is missing, another has to be said.
stays=("$programs/lab01_$whose" --resume --out moved --cache cache)
"${stays[@]}" --steps $((steps + 3)) >moved.log 2>&1 || fail "$(cat moved.log)"
grep -q 'threads:' moved.log && fail "moved to the CPU: $(cat moved.log)"
if [[ $whose == emulated ]]; then
  LAB_EMULATED_DRIVER=missing refused '--device cuda: no GPU can be used' "${stays[@]}" \
    --steps $((steps + 4))
  LAB_EMULATED_DRIVER=missing "${stays[@]}" --steps $((steps + 4)) --device cpu >moved.log 2>&1 ||
    fail "$(cat moved.log)"
  grep -q 'threads:' moved.log || fail "not on the CPU: $(cat moved.log)"
fi

# Less precision trains, too.
if "$programs/lab01_$whose" "${size[@]}" --cache cache --out old --device cuda --precision bfloat16 \
  --steps 1 >old.log 2>&1; then
  on cuda 01 rounded --precision bfloat16 --steps "$steps"
else
  grep -q 'needs a GPU of compute capability' old.log || fail "$(cat old.log)"
fi

lab01=$programs/lab01_$whose
refused 'the CPU has no tf32' "$lab01" "${size[@]}" --cache cache --out x --precision tf32
refused 'must be\|not in' "$lab01" "${size[@]}" --cache cache --out x --device tpu
if [[ $whose == emulated ]]; then
  LAB_EMULATED_DRIVER=missing refused '--device cuda: no GPU can be used' "$lab01" "${size[@]}" \
    --cache cache --out x --device cuda
  LAB_EMULATED_MEMORY=1000000 refused 'memory' "$lab01" "${size[@]}" --cache cache --out x \
    --device cuda
  LAB_EMULATED_DRIVER=missing "$lab01" "${size[@]}" --cache cache --out auto --device auto \
    >auto.log 2>&1 || fail "--device auto without a GPU: $(cat auto.log)"
  # Every rank says why it cannot.
  if "$programs/lab02_$whose" "${size[@]}" --cache cache --out x --device cuda --ranks 3 \
    --comm nccl >nccl.log 2>&1; then fail "NCCL with ranks that share a GPU: accepted"; fi
  grep -q 'rank 2 of this machine would share' nccl.log || fail "$(cat nccl.log)"
fi
