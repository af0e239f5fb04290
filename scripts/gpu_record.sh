# shellcheck shell=bash disable=SC2154
# What ./workbook gpu keeps of each piece of its work, so that a record can grow over several runs.
# Sourced by gpu.sh, which sets `root`, `logs`, `programs`, `record`, `gpus` and `most_seconds`.
#
# The folder of logs holds for each piece its output NAME.log and NAME.err, a line in `outcomes`, and
# row-NAME.md, its line of the table; and for each part section-NN_PART.md. The record consists of all
# sections. It belongs to one build on one machine's GPUs; with another, it starts from scratch.

# attempt NAME SECONDS COMMAND...: runs it with a time limit; its output is logs/NAME.log, its errors
# logs/NAME.err. Sets outcome to "passed", or to what went wrong, and then returns 1. Reports on
# standard error, because standard output may go into a table.
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

# note NAME OUTCOME: records it, replacing an earlier outcome.
note() {
  touch "$logs/outcomes"
  awk -F'\t' -v name="$1" '$1 != name' "$logs/outcomes" >"$logs/outcomes.new"
  printf '%s\t%s\n' "$1" "$2" >>"$logs/outcomes.new"
  mv "$logs/outcomes.new" "$logs/outcomes"
}

# part NAME SECONDS COMMAND...: attempts it and records the outcome.
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

# Which build and which GPUs a record belongs to.
identity() {
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || true
  cksum "$programs/devices" "$programs/cuda_tests" "$programs/bench_step" 2>/dev/null || true
}

# start_record fresh|kept: keeps earlier results if asked to, and if build and GPUs are the same.
start_record() {
  if [[ $1 == fresh || $(identity) != "$(cat "$logs/identity" 2>/dev/null)" ]]; then
    rm -f "$logs"/section-*.md "$logs"/row-*.md "$logs"/{outcomes,commands}
    identity >"$logs/identity"
  fi
  touch "$logs/outcomes" "$logs/commands"
  grep -qxF -- "$command_line" "$logs/commands" || echo "$command_line" >>"$logs/commands"
}

# The table lines of the given pieces, from this run or an earlier one.
rows() {
  local name
  for name; do
    if [[ -f $logs/row-$name.md ]]; then cat "$logs/row-$name.md"; fi
  done
}

# section NN_NAME: stores a part's section of the record, from stdin.
section() {
  cat >"$logs/section-$1.md"
  write_record
}

# Whether there are results, not only the description of the machine.
has_results() { compgen -G "$logs/section-[2-9]*.md" >/dev/null; }

# Called after every part, so that an interrupted run leaves its results.
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
