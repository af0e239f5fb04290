#!/usr/bin/env bash
# ./workbook gpu: tests and times everything on this machine's GPU, and records the results.
#
#   ./workbook gpu [--quick] [--record FILE]
#     --quick        fewer tests under compute-sanitizer, fewer rounds
#     --record FILE  write the results there instead of docs/gpu-results.md
#
# Each part has a time limit; after one that fails the next goes on. Logs are in build/student/gpu.
# Exits with 1 if there is no GPU or a part has failed.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/student"
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}
programs="$build/bin"
logs="$build/gpu"
started=$(date -u '+%Y-%m-%d %H:%M UTC')
command_line="./workbook gpu${*:+ $*}"
quick=no
record="$root/docs/gpu-results.md"
failed=()

while (($#)); do
  case $1 in
    --quick) quick=yes ;;
    --record)
      (($# >= 2)) || fail "--record takes the name of a file"
      record=$2
      shift
      ;;
    --record=*) record=${1#--record=} ;;
    *) fail "usage: ./workbook gpu [--quick] [--record FILE]" ;;
  esac
  shift
done

# in_full QUICK FULL: one of the two.
in_full() { if [[ $quick == yes ]]; then echo "$1"; else echo "$2"; fi; }

# part NAME SECONDS COMMAND...: runs it with a time limit; its output is logs/NAME.log, its errors
# logs/NAME.err. Sets outcome to "passed", or to what went wrong; returns 1 then.
part() {
  local name=$1 limit=$2 code=0
  shift 2
  printf '%-24s ' "$name"
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>"$logs/$name.err" </dev/null || code=$?
  case $code in
    0) outcome=passed ;;
    77) outcome="skipped: $(tail -n 1 "$logs/$name.log")" ;;
    124 | 137) outcome="not finished after $limit s" ;;
    *) outcome="failed (exit code $code): $(tail -n 1 "$logs/$name.err" | tr '|' '/')" ;;
  esac
  outcome=${outcome%: }
  echo "$outcome"
  [[ $code == 0 || $code == 77 ]] && return
  failed+=("$name")
  return 1
}

# section NN_NAME: what the record says about a part, from stdin.
section() {
  cat >"$logs/section-$1.md"
  write_record
}

# After every part: a run that is broken off leaves what it has found.
write_record() {
  {
    echo '# Results on a GPU'
    echo
    echo "This file is written by \`./workbook gpu\` ([GPUs](gpu.md))."
    cat "$logs"/section-*.md
  } >"$logs/record.md"
  cp "$logs/record.md" "$record" || fail "cannot write to $record"
}

first_line() { "$@" 2>/dev/null | head -n 1 || true; }

find_gpu() {
  local remedy="see docs/gpu.md; without one, ./workbook test runs every kernel on its emulation"
  command -v nvidia-smi >/dev/null || fail "there is no GPU here: nvidia-smi is missing; $remedy"
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)
  ((gpus > 0)) || fail "there is no GPU here: nvidia-smi lists none; $remedy"
}

describe_machine() {
  local nvcc nccl
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  nccl=$(/sbin/ldconfig -p 2>/dev/null | sed -n 's/.*=> \(.*libnccl\.so\..*\)/\1/p' | head -n 1)
  cat <<EOF

| | |
|---|---|
| date | $started |
| command | \`$command_line\` |
| version | $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown) |
| GPU | $gpus x $(first_line nvidia-smi --query-gpu=name,memory.total --format=csv,noheader) |
| driver | $(first_line nvidia-smi --query-gpu=driver_version --format=csv,noheader) |
| toolkit | $("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p' || true) |
| NCCL | $(if [[ -n $nccl ]]; then basename "$(readlink -f "$nccl")"; else echo none; fi) |
EOF
}

# Configures (the toolkit may be newer than the build folder) and builds what all parts need; tests
# build the rest themselves.
build_all() {
  ensure_ready -DLAB_CUDA=AUTO
  [[ -n $(cached CMAKE_CUDA_COMPILER) ]] ||
    fail "there is no CUDA Toolkit of version 12 or newer to build with: see docs/gpu.md"
  part build 2400 cmake --build "$build" --parallel "$(build_jobs)" --target devices cuda_tests \
    bench_step bench_allreduce || {
    tail -n 15 "$logs/build.log" >&2
    fail "the build failed (whole log: $logs/build.log); nothing was recorded"
  }
}

# A table: passed, failed and skipped by the group that a test's name begins with; and which ones.
test_table() {
  echo '| group | passed | failed | skipped |'
  echo '|---|---|---|---|'
  awk -F'"' '
    function finish() {
      if (name == "") return
      group = name
      sub(/[.].*/, "", group)
      count[group, state]++
      groups[group] = 1
      if (state != "run") names[state] = names[state] "\n- " name ": " (state == "fail" ? "failed" : "skipped")
      name = ""
    }
    /<testcase / {
      for (i = 1; i < NF; i++) {
        if ($i ~ / name=$/) name = $(i + 1)
        if ($i ~ / status=$/) state = $(i + 1)
      }
      if (state != "run" && state != "fail") state = "notrun"
      finish()
    }
    END {
      for (group in groups)
        printf "| %s | %d | %d | %d |\n", group, count[group, "run"], count[group, "fail"],
               count[group, "notrun"] | "sort"
      close("sort")
      print names["fail"] names["notrun"]
    }' "$logs/tests.xml"
}

run_tests() {
  local limit
  limit=$(in_full 900 2400)
  rm -f "$logs/tests.xml"
  part tests "$limit" ctest --preset gpu --output-junit "$logs/tests.xml" || true
  {
    echo
    echo "## Tests"
    echo
    echo "\`ctest --preset gpu\`: $outcome."
    echo
    if [[ -f $logs/tests.xml ]]; then test_table; fi
  } | section 20-tests
}

# sanitize TOOL FILE OPTION...
sanitize() {
  local tool=$1 file=$2 name=$1-${2%_test.cpp} summary
  shift 2
  LAB_CUDA_CACHE=0 part "$name" "$(in_full 240 900)" compute-sanitizer --tool "$tool" \
    --error-exitcode 9 "$@" "$programs/cuda_tests" --file "$file" || true
  summary=$(cat "$logs/$name.log" "$logs/$name.err" | sed -n 's/^=* *\([A-Z]* SUMMARY: .*\)/\1/p')
  echo "| $tool | $file | $outcome | ${summary:--} |" >>"$logs/sanitizer.md"
}

run_sanitizer() {
  local files=(ops_cuda_test.cpp) file
  : >"$logs/sanitizer.md"
  if command -v compute-sanitizer >/dev/null; then
    [[ $quick == yes ]] || files+=(copies_cuda_test.cpp precision_cuda_test.cpp
      recording_cuda_test.cpp llama_stage_cuda_test.cpp)
    for file in "${files[@]}"; do
      # Errors that a call returns are what some tests ask for.
      sanitize memcheck "$file" --report-api-errors no
      sanitize racecheck "$file"
    done
  fi
  {
    echo
    echo "## compute-sanitizer"
    echo
    if [[ -s $logs/sanitizer.md ]]; then
      echo "Every tensor a piece of memory of its own (\`LAB_CUDA_CACHE=0\`)."
      printf '\n| tool | tests | outcome | summary |\n|---|---|---|---|\n'
      cat "$logs/sanitizer.md"
    else
      echo "Left out: compute-sanitizer was not found."
    fi
  } | section 30-sanitizer
}

# number FIELD: of the JSON object on stdin.
number() { sed -n 's/.*"'"$1"'":\([0-9.e+-]*\).*/\1/p'; }

# time_step MODEL PRECISION BATCH STEPS: adds a row to the table.
time_step() {
  local model=$1 precision=$2 batch=$3 steps=$4 name=step-$1-$2 json
  part "$name" 300 "$programs/bench_step" --device cuda --json --model "$model" \
    --precision "$precision" --batch "$batch" --steps "$steps" --warmup 20 --rounds 5 || {
    echo "| $model, $batch sequences | $precision | $outcome | | | | | |" >>"$logs/steps.md"
    return 0
  }
  json=$(tail -n 1 "$logs/$name.log")
  local field values=()
  for field in milliseconds_per_step tokens_per_second gflops matmul_gflops share_of_matmul \
    waiting_share gpu_mib; do values+=("$(number "$field" <<<"$json")"); done
  LC_ALL=C awk -v head="| $model, $batch sequences | $precision" -v values="${values[*]}" 'BEGIN {
    split(values, v, " ")
    printf "%s | %.2f | %.0f | %.1f of %.1f | %.0f %% | %.0f %% | %.0f |\n", head, v[1], v[2],
           v[3] / 1000, v[4] / 1000, 100 * v[5], 100 * v[6], v[7]
  }' >>"$logs/steps.md"
}

run_benchmark() {
  local precision
  : >"$logs/steps.md"
  for precision in float32 tf32 bfloat16; do
    time_step seed "$precision" 3 "$(in_full 100 500)"
    time_step large "$precision" 4 "$(in_full 10 50)"
  done
  {
    cat <<'EOF'

## Training step

The peak is that of a square matrix product of 4096 rows in the same precision, measured in turns with the
step. While the host only waits the GPU is busy: it is so for at least that share of the step.

| model | products | ms | tokens/s | TFLOP/s of peak | share | host only waits | MiB |
|---|---|---|---|---|---|---|---|
EOF
    cat "$logs/steps.md"
  } | section 40-step
}

# against_torch MODEL PRECISION BATCH STEPS
against_torch() {
  local name=torch-$1-$2
  part "$name" "$(in_full 300 1500)" "${PYTHON:-python3}" "$root/tests/bench/compare_torch.py" \
    "$programs/bench_step" --device cuda --model "$1" --precision "$2" --batch "$3" --steps "$4" \
    --warmup 20 --vocab 4096 --table --rounds "$(in_full 2 5)" \
    --against eager default reduce-overhead || echo "$1, $2: $outcome." >>"$logs/torch-failed.md"
  # The head of the table once.
  if [[ -s $logs/torch.md ]]; then sed -i 1,2d "$logs/$name.log"; fi
  cat "$logs/$name.log" >>"$logs/torch.md"
}

compare_with_torch() {
  local precision precisions=(float32 tf32 bfloat16)
  [[ $quick == no ]] || precisions=(float32 bfloat16)
  rm -f "$logs/torch.md" "$logs/torch-failed.md"
  if "${PYTHON:-python3}" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
    >"$logs/torch.log" 2>&1; then
    for precision in "${precisions[@]}"; do
      against_torch seed "$precision" 3 "$(in_full 100 300)"
      against_torch large "$precision" 4 "$(in_full 5 20)"
    done
  else
    echo "Left out: ${PYTHON:-python3} has no PyTorch that sees the GPU (PYTHON names another)." \
      >"$logs/torch.md"
  fi
  {
    cat <<'EOF'

## Against PyTorch

The same model on the same GPU, in turns; ratio: time of PyTorch's step over the workbook's. "eager": as it
is; otherwise its forward and backward are compiled in that mode of `torch.compile`.

EOF
    cat "$logs/torch.md"
    if [[ -f $logs/torch-failed.md ]]; then
      echo
      cat "$logs/torch-failed.md"
    fi
  } | section 50-torch
}

run_all_reduce() {
  {
    printf '\n## All-reduce between GPUs\n\n'
    if ((gpus < 2)); then
      echo "Left out: there is one GPU only."
    else
      part allreduce 300 "$programs/bench_allreduce" --ranks "$gpus" --device cuda --comm nccl \
        --largest 268435456 >&3 || true
      echo "Over NCCL: $outcome."
      printf '\n```\n'
      cat "$logs/allreduce.log"
      printf '```\n'
    fi
  } 3>&1 >"$logs/allreduce.md"
  section 60-allreduce <"$logs/allreduce.md"
}

conclude() {
  {
    echo
    if ((${#failed[@]})); then
      echo "**Failed**, or not finished in time: ${failed[*]}."
    else
      echo "Nothing failed; what was skipped or left out is named below."
    fi
  } | section 15-outcome
  echo "results: $record; logs: ${logs#"$root"/}"
  ((${#failed[@]} == 0))
}

find_gpu
record=$(realpath -m -- "$record")
cd "$root"
mkdir -p "$logs"
rm -f "$logs"/section-*.md
build_all
device=$("$programs/devices")
[[ $device != CPU:* ]] || fail "the GPU cannot be used: ${device#CPU: }"
describe_machine | section 10-machine
run_tests
run_sanitizer
run_benchmark
compare_with_torch
run_all_reduce
conclude
