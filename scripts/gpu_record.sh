# shellcheck shell=bash disable=SC2154
# What ./workbook gpu keeps of each piece of its work, so that a record can grow over several runs.
# Sourced by gpu.sh, which sets `root`, `logs`, `programs`, `record`, `gpus` and `most_seconds`.
#
# In the folder of logs lie, of each piece, its output NAME.log and NAME.err and a line in `outcomes`;
# row-NAME.md, which its table has of it; and of each part section-NN_PART.md. The record is all
# sections. It is of one build on one machine's GPUs: with another, it begins anew.

# attempt NAME SECONDS COMMAND...: runs it with a time limit; its output is logs/NAME.log, its errors
# logs/NAME.err. Sets outcome to "passed", or to what went wrong; returns 1 then. Tells of it on
# standard error: standard output may go into a table.
attempt() {
  local name=$1 limit=$2 code=0
  shift 2
  ((limit < most_seconds)) || limit=$most_seconds
  printf '%-34s ' "$name" >&2
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>"$logs/$name.err" </dev/null || code=$?
  case $code in
    0) outcome=passed ;;
    77) outcome="skipped: $(tail -n 1 "$logs/$name.log")" ;;
    124 | 137) outcome="not finished after $limit s" ;;
    *) outcome="failed (exit code $code): $(tail -n 1 "$logs/$name.err" | tr '|' '/')" ;;
  esac
  outcome=${outcome%: }
  echo "$outcome" >&2
  [[ $code == 0 || $code == 77 ]]
}

# note NAME OUTCOME: in place of what was noted of it before.
note() {
  touch "$logs/outcomes"
  awk -F'\t' -v name="$1" '$1 != name' "$logs/outcomes" >"$logs/outcomes.new"
  printf '%s\t%s\n' "$1" "$2" >>"$logs/outcomes.new"
  mv "$logs/outcomes.new" "$logs/outcomes"
}

# part NAME SECONDS COMMAND...: attempts it and notes the outcome.
part() {
  local good=0
  attempt "$@" || good=1
  note "$1" "$outcome"
  return "$good"
}

# Names of the pieces whose outcome begins with one of the given words, in one line.
pieces_that() {
  awk -F'\t' -v words="^($(IFS='|' && echo "$*"))" '$2 ~ words { printf "%s%s", sep, $1; sep = " " }' \
    "$logs/outcomes"
}

is_noted() { awk -F'\t' -v name="$1" '$1 == name { found = 1 } END { exit !found }' "$logs/outcomes"; }

# Of which build and which GPUs a record is.
identity() {
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true
  cksum "$programs/devices" "$programs/cuda_tests" "$programs/bench_step" 2>/dev/null || true
}

# start_record fresh|kept: what is there stays if it may, and is of the same build and GPUs.
start_record() {
  if [[ $1 == fresh || $(identity) != "$(cat "$logs/identity" 2>/dev/null)" ]]; then
    rm -f "$logs"/section-*.md "$logs"/row-*.md "$logs"/{outcomes,commands}
    identity >"$logs/identity"
  fi
  touch "$logs/outcomes" "$logs/commands"
  grep -qxF -- "$command_line" "$logs/commands" || echo "$command_line" >>"$logs/commands"
}

# Rows of the given pieces, of this run or an earlier one.
rows() {
  local name
  for name; do
    if [[ -f $logs/row-$name.md ]]; then cat "$logs/row-$name.md"; fi
  done
}

# section NN_NAME: what the record says about a part, from stdin.
section() {
  cat >"$logs/section-$1.md"
  write_record
}

# Whether anything but the machine was looked at.
has_results() { compgen -G "$logs/section-[2-9]*.md" >/dev/null; }

# After every part: a run that is broken off leaves what it has found.
write_record() {
  has_results || return 0
  {
    echo '# Results on a GPU'
    echo
    echo "This file is written by \`./workbook gpu\` ([GPUs](gpu.md))."
    cat "$logs"/section-*.md
  } >"$logs/record.md"
  cp "$logs/record.md" "$record" || fail "cannot write to $record"
}

first_line() { "$@" 2>/dev/null | head -n 1 || true; }

describe_machine() {
  local nvcc nccl
  nvcc=$(toolkit_program nvcc || true)
  nccl=$(/sbin/ldconfig -p 2>/dev/null | sed -n 's/.*=> \(.*libnccl\.so\..*\)/\1/p' | head -n 1)
  cat <<EOF

| | |
|---|---|
| date | $started |
| command | $(awk '{ printf "%s`%s`", (NR > 1 ? ", then " : ""), $0 }' "$logs/commands") |
| version | $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown) |
| GPU | $gpus x $(first_line nvidia-smi --query-gpu=name,memory.total --format=csv,noheader) |
| driver | $(first_line nvidia-smi --query-gpu=driver_version --format=csv,noheader) |
| toolkit | $("${nvcc:-nvcc}" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p' || true) |
| NCCL | $(if [[ -n $nccl ]]; then basename "$(readlink -f "$nccl")"; else echo none; fi) |
EOF
}
