# shellcheck shell=bash disable=SC2154
# What ./workbook gpu keeps of each piece of its work, so that a record can grow over several runs.
# Sourced by gpu.sh and gpu_run.sh, which set `logs`, `programs`, `record`, `device`, `gpus`, `build_facts`,
# `most_seconds` and `all_seconds`, and define copy_out, which is called whenever the record was written.
#
# The folder of logs holds for each piece its output NAME.log and NAME.err, a line in `outcomes`, and
# row-NAME.md, its line of the table; and for each part section-NN_PART.md. The record consists of all
# sections. It belongs to one build on one machine's GPUs; with another, it starts from scratch.

# attempt NAME SECONDS COMMAND...: runs it with a time limit; its output is logs/NAME.log, its errors
# logs/NAME.err. Sets outcome to "passed", or to what went wrong, and then returns 1. Reports on
# standard error, because standard output may go into a table. If the time of the whole run ends first,
# so does this script, with code 3: the piece is still to be run.
attempt() {
  local name=$1 limit=$2 code=0 left=$((all_seconds - SECONDS))
  shift 2
  ((limit < most_seconds)) || limit=$most_seconds
  if ((left < limit)); then
    limit=$left
    ((limit >= 5)) || stop_for_now
  fi
  printf '%-34s ' "$name" >&2
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>"$logs/$name.err" </dev/null || code=$?
  case $code in
    124 | 137) if ((limit == left)); then stop_for_now; fi ;;&
    0) outcome=passed ;;
    77) outcome="skipped: $(tail -n 1 "$logs/$name.log")" ;;
    124 | 137) outcome="not finished after $limit s" ;;
    *) outcome="failed (exit code $code): $(tail -n 1 "$logs/$name.err" | tr '|' '/')" ;;
  esac
  outcome=${outcome%: }
  echo "$outcome" >&2
  [[ $code == 0 || $code == 77 ]]
}

stop_for_now() {
  echo "time is up; the same command continues" >&2
  exit 3
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

is_noted() { [[ $'\n'$(<"$logs/outcomes") == *$'\n'"$1"$'\t'* ]]; }

# Which build and which GPUs a record belongs to.
identity() {
  echo "$device, $(driver_version)"
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

# The table lines of a part's pieces, from this run or an earlier one.
rows() {
  local name
  for name in $(quick=no pieces_of "$1"); do
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
  copy_out
}

first_line() { "$@" 2>/dev/null | head -n 1 || true; }

# As the kernel's module says; nvidia-smi is not on every machine that has the driver.
driver_version() {
  first_line grep -oE '[0-9]+[.][0-9]+([.][0-9]+)?' /proc/driver/nvidia/version
}

# What failed, and what is not in the record yet: whole parts, or single pieces.
show_outcome() {
  local part piece missing=() of_part all failed
  failed=$(pieces_that failed 'not finished')
  for part in "${parts[@]}"; do
    of_part=() all=0
    for piece in $(pieces_of "$part"); do
      all=$((all + 1))
      is_noted "$piece" || of_part+=("$piece")
    done
    if ((${#of_part[@]} == all)); then missing+=("$part"); else missing+=(${of_part[@]+"${of_part[@]}"}); fi
  done
  {
    echo
    if [[ -n $failed ]]; then
      echo "**Failed**, or not finished in time: $failed."
    else
      echo "Nothing failed; what was skipped or left out is listed below."
    fi
    if ((${#missing[@]})); then printf '\n**Not run yet**: %s.\n' "${missing[*]}"; fi
  } | section 15-outcome
}

# The exit code of all runs in the record.
conclude() {
  show_outcome
  echo "results: $(has_results && echo "$record" || echo none yet); logs: $logs"
  [[ -z $(pieces_that failed 'not finished') ]]
}

# `build_facts` are lines of the table about how the programs were built.
describe_machine() {
  local memory
  memory=$(first_line nvidia-smi --query-gpu=memory.total --format=csv,noheader)
  cat <<EOF

| | |
|---|---|
| date | $started |
| command | $(awk '{ printf "%s`%s`", (NR > 1 ? ", then " : ""), $0 }' "$logs/commands") |
| GPU | $gpus x ${device% (GPU *}${memory:+, $memory} |
| driver | $(driver_version) |
$build_facts
EOF
}
