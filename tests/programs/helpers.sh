# What the tests of programs share. Sourced by them; $programs and $folder are theirs, and $whose
# programs it is about: the solution's unless they say so.
# shellcheck shell=bash disable=SC2154

fail() {
  printf 'failed: %s\n' "$*" >&2
  exit 1
}

# run LAB OUT OPTION...: trains a small model with the solution of a lab; LAB may be train, the trainer.
run() {
  local program=$programs/${1/#[0-9]/lab${1:0:1}}_${whose:-solution} out=$2 option
  local -A defaults=([--dim]=48 [--heads]=4 [--context]=64 [--story-tokens]=0 [--validate-every]=0
    [--threads]=1 [--validation-batches]=2 [--checkpoint-every]=0 [--decay]=constant [--warmup]=0
    [--cache]=cache)
  shift 2
  for option; do unset "defaults[$option]"; done
  for option in "${!defaults[@]}"; do set -- "$@" "$option" "${defaults[$option]}"; done
  "$program" --out "$out" "$@" >"$out.log" 2>&1 || fail "$out:"$'\n'"$(cat "$out.log")"
}

# numbers FOLDER KIND: those of the model or the optimizer of a checkpoint, whole or in parts.
numbers() {
  local file
  for file in "$1/$2"*.safetensors; do
    # Eight bytes tell the length of the header.
    tail -c "+$(($(od -An -t u8 -N 8 "$file") + 9))" "$file"
  done
}

# same_losses A B: of all steps, to the last bit.
same_losses() {
  cmp <(grep -o '"loss":[^,]*' "$1/metrics.jsonl") \
    <(grep -o '"loss":[^,]*' "$2/metrics.jsonl") || fail "$1 and $2: other losses"
}

# near A B: the losses of two runs differ by 1e-5 at most.
near() {
  paste <(grep -o '"loss":[^,]*' "$1/metrics.jsonl") <(grep -o '"loss":[^,]*' "$2/metrics.jsonl") |
    tr -d '":a-z' | awk '{ d = $1 - $2; if (NF != 2 || d * d > 1e-10) exit 1 }' ||
    fail "$1 and $2: losses that are not near"
}

# same A B CHECKPOINT: losses and checkpoint of two runs, to the last bit.
same() {
  local kind
  same_losses "$1" "$2"
  for kind in model optimizer; do
    cmp <(numbers "$1/$3" "$kind") <(numbers "$2/$3" "$kind") || fail "$1 and $2: another $kind"
  done
}

# refused PATTERN COMMAND...: ends with an error code, and one line that says why.
refused() {
  local pattern=$1
  shift
  if "$@" >refused.log 2>&1; then fail "accepted: $*"; fi
  (($(wc -l <refused.log) == 1)) || fail "more than a line: $*"$'\n'"$(cat refused.log)"
  grep -q -- "$pattern" refused.log || fail "not '$pattern':"$'\n'"$(cat refused.log)"
}
