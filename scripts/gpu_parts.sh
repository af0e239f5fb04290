# shellcheck shell=bash disable=SC2154
# The parts of ./workbook gpu: each runs its requested pieces, and writes its section of the record after
# every piece. Sourced by gpu.sh and gpu_run.sh.

run_parts() {
  local part piece
  for part in "${parts[@]}"; do
    [[ -n $(wanted_pieces "$part") ]] || continue
    if declare -F "prepare_$part" >/dev/null; then "prepare_$part"; fi
    for piece in $(wanted_pieces "$part"); do
      "run_$part" "$piece"
      "show_$part"
      show_outcome
    done
  done
}

# left_out PIECE REASON: records why a piece is not run.
left_out() {
  outcome="left out: $2"
  note "$1" "$outcome"
}

# --- tests ------------------------------------------------------------------------------------------

run_tests() {
  local name=${1#tests-} test=(env OMP_WAIT_POLICY=PASSIVE "$programs/cuda_tests" --file)
  case $name in
    lab01cuda) part "$1" 280 env LAB_TEST_DEVICE=cuda "$programs/lab01cuda_verdict" --implementation solution ;;
    programs-*) part "$1" 280 "$root/tests/programs/device_test.sh" "$programs" solution "${name#programs-}" ;;
    nccl_on_one_gpu) test_nccl_on_one_gpu "$1" "${test[@]}" nccl_transport_test.cpp ;;
    nccl_*)
      if [[ -n $no_nccl ]]; then left_out "$1" "$no_nccl"; else part "$1" 280 "${test[@]}" "${name}_test.cpp"; fi
      ;;
    *) part "$1" 280 "${test[@]}" "${name}_test.cpp" ;;
  esac || true
  if [[ $outcome == skipped* ]] && grep -q ': Skipped$' "$logs/$1.log"; then
    outcome="skipped: $(sed -n '/: Skipped$/ { n; p; q }' "$logs/$1.log")" # GoogleTest's reason
    note "$1" "$outcome"
  fi
  if [[ $outcome == failed*')' ]] && ! grep -q '^\[ RUN' "$logs/$1.log"; then
    outcome+=": $(grep -m 1 . "$logs/$1.log" || true)" # its errors are in its output
    note "$1" "$outcome"
  fi
  test_row "$1" "$name" >"$logs/row-$1.md"
}

# Ranks that share a GPU, each as a host of its own. NCCL does not promise this: one small test finds out
# whether it works here.
test_nccl_on_one_gpu() {
  local piece=$1
  shift
  if [[ -n $no_nccl ]]; then
    left_out "$piece" "$no_nccl"
  elif ((gpus >= 2)); then
    left_out "$piece" "there are several GPUs"
  elif ! LAB_NCCL_SHARE_GPU=1 attempt probe-nccl 100 "${@:1:3}" \
    --gtest_filter='Ranks/Nccl.BroadcastAndReduceUseTheRoot/0' || [[ $outcome == skipped* ]]; then
    left_out "$piece" "NCCL does not let ranks share a GPU here: $outcome"
  else
    LAB_NCCL_SHARE_GPU=1 part "$piece" 280 "$@"
  fi
}

# A piece's line of the table: how many tests of GoogleTest passed, failed and were skipped, and which failed.
test_row() {
  local log=$logs/$1.log
  if [[ $outcome == left\ out* ]]; then log=/dev/null; fi
  awk -v name="$2" -v outcome="$outcome" '
    /^\[ RUN      \]/ { running = $4 }
    /^\[       OK \]/ { passed++; running = "" }
    /^\[  SKIPPED \] .* ms\)$/ { skipped++; running = "" }
    /^\[  FAILED  \] .* ms\)$/ { failed++; running = ""; names = names ", " $4 }
    END {
      if (running != "") names = names ", " running " did not end"
      counts = passed + failed + skipped > 0 ? sprintf("%d | %d | %d", passed, failed, skipped) : "| |"
      if (names != "") sub(/: .*|$/, ": " substr(names, 3), outcome)
      printf "| %s | %s | %s |\n", name, counts, outcome
    }' "$log"
}

show_tests() {
  {
    cat <<'EOF'

## Tests

By file of `tests/gpu`; then lab 01's CUDA part, and the programs of the labs, on CPU and GPU.

| tests | passed | failed | skipped | outcome |
|---|---|---|---|---|
EOF
    rows tests
  } | section 20-tests
}

# --- compute-sanitizer ------------------------------------------------------------------------------

# The path of a toolkit program: next to the build's compiler, on the PATH, or in the usual place.
toolkit_program() {
  local beside usual=/usr/local/cuda/bin/$1
  beside=$(dirname -- "$(cached CMAKE_CUDA_COMPILER)")/$1
  if [[ -x $beside ]]; then
    echo "$beside"
  elif ! command -v "$1"; then
    [[ -x $usual ]] && echo "$usual"
  fi
}

# sanitize NAME SECONDS TOOL TEST...
sanitize() {
  local name=$1 limit=$2 tool=$3 options=()
  shift 3
  # Some tests provoke errors that calls return.
  if [[ $tool == memcheck ]]; then options=(--report-api-errors no); fi
  # racecheck looks at cuBLAS's kernels too: when --kernel-name leaves them out, version 2025.3.1 fails on Hopper with
  # an internal error.
  attempt "$name" "$limit" env LAB_CUDA_CACHE=0 "$sanitizer" --tool "$tool" --error-exitcode 9 \
    ${options[@]+"${options[@]}"} "$programs/cuda_tests" "$@"
}

# problem_with TOOL: runs one tiny test and prints why the tool cannot work here at all; nothing if it
# can. Tools report their own problems in lines with "Error:", those of kernels without (except races).
problem_with() {
  local name=probe-$1 problem
  sanitize "$name" 120 "$1" --gtest_filter=CudaOpsBadInput.RefusesTensorsOfTwoDevices || true
  problem=$(cat "$logs/$name.log" "$logs/$name.err" |
    sed -n '/Race reported/d; s/^=* *\(\(Internal Sanitizer \)\{0,1\}Error: .*\)/\1/p')
  problem=${problem%%$'\n'*}
  if [[ -z $problem ]] && ! grep -q ' SUMMARY: ' "$logs/$name.log" "$logs/$name.err"; then
    problem="no summary, $outcome"
  fi
  tr '|' '/' <<<"$problem"
}

prepare_sanitizer() {
  local tool
  declare -gA sanitizer_problems=()
  for tool in memcheck racecheck; do
    [[ $(wanted_pieces sanitizer) == *"$tool-"* ]] || continue
    if sanitizer=$(toolkit_program compute-sanitizer); then
      sanitizer_problems[$tool]=$(problem_with "$tool")
      sanitizer_problems[$tool]=${sanitizer_problems[$tool]:+not available here: ${sanitizer_problems[$tool]}}
    else
      sanitizer_problems[$tool]="left out: compute-sanitizer was not found"
    fi
  done
}

run_sanitizer() {
  local tool=${1%%-*} file=${1#*-}_test.cpp summary=
  outcome=${sanitizer_problems[$tool]}
  if [[ -z $outcome ]]; then
    sanitize "$1" "$(in_full 240 900)" "$tool" --file "$file" || true
    summary=$(cat "$logs/$1.log" "$logs/$1.err" | sed -n 's/^=* *\([A-Z]* SUMMARY: .*\)/\1/p')
  fi
  note "$1" "$outcome"
  echo "| $tool | $file | $outcome | ${summary:--} |" >"$logs/row-$1.md"
}

show_sanitizer() {
  {
    cat <<'EOF'

## compute-sanitizer

Every tensor has its own allocation (`LAB_CUDA_CACHE=0`). The kernels of cuBLAS are checked, too.

| tool | tests | outcome | summary |
|---|---|---|---|
EOF
    rows sanitizer
  } | section 30-sanitizer
}

# --- the training step ------------------------------------------------------------------------------

# number FIELD: prints that field of the JSON object on stdin.
number() { sed -n 's/.*"'"$1"'":\([0-9.e+-]*\).*/\1/p'; }

# time_step MODEL PRECISION BATCH STEPS: prints its line of the table.
time_step() {
  local model=$1 precision=$2 batch=$3 steps=$4 name=step-$1-$2 json
  part "$name" 280 "$programs/bench_step" --device cuda --json --model "$model" \
    --precision "$precision" --batch "$batch" --steps "$steps" --warmup 20 --rounds 5 || {
    without_bfloat16 "$name"
    echo "| $model, $batch sequences | $precision | $outcome | | | | | |"
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
  }'
}

# A GPU that has no bfloat16 is no failure.
without_bfloat16() {
  local reason
  if reason=$(grep -o 'bfloat16 needs a GPU[^:]*' "$logs/$1.err"); then left_out "$1" "$reason"; fi
}

run_step() {
  local model precision
  IFS=- read -r _ model precision <<<"$1"
  if [[ $model == seed ]]; then
    time_step seed "$precision" 3 "$(in_full 100 500)"
  else
    time_step large "$precision" 4 "$(in_full 10 50)"
  fi >"$logs/row-$1.md"
}

show_step() {
  {
    cat <<'EOF'

## Training step

The peak is the rate of a square matrix product of 4096 rows in the same precision, its operands rounded
beforehand, measured in alternation with the step. While the host only waits, the GPU is busy: it is busy for at
least that fraction of the step.

| model | products | ms | tokens/s | TFLOP/s of peak | share | host only waits | MiB |
|---|---|---|---|---|---|---|---|
EOF
    rows step
  } | section 40-step
}

# --- PyTorch ----------------------------------------------------------------------------------------

prepare_torch() {
  torch_problem="${PYTHON:-python3} has no PyTorch that sees the GPU"
  if "${PYTHON:-python3}" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
    >"$logs/torch.log" 2>&1; then torch_problem=; fi
}

# against_torch PIECE MODEL PRECISION MODE BATCH STEPS: prints its line of the table.
against_torch() {
  part "$1" 290 "${PYTHON:-python3}" "$root/tests/bench/compare_torch.py" "$programs/bench_step" \
    --device cuda --model "$2" --precision "$3" --against "$4" --batch "$5" --steps "$6" --warmup 20 \
    --vocab 4096 --table --rounds "$(in_full 2 5)" || {
    without_bfloat16 "$1"
    echo "| $2 | $3 | | $4: $outcome | | | | |"
    return 0
  }
  sed 1,2d "$logs/$1.log" # the record has its own table head
}

run_torch() {
  local model precision mode
  IFS=- read -r _ model precision mode <<<"$1"
  if [[ -n $torch_problem ]]; then
    left_out "$1" "$torch_problem"
    echo "| $model | $precision | | $mode: $outcome | | | | |"
  elif [[ $model == seed ]]; then
    against_torch "$1" seed "$precision" "$mode" 3 "$(in_full 100 300)"
  else
    against_torch "$1" large "$precision" "$mode" 4 "$(in_full 5 20)"
  fi >"$logs/row-$1.md"
}

show_torch() {
  {
    cat <<'EOF'

## Against PyTorch

The same model on the same GPU, in alternation; ratio: time of PyTorch's step over the workbook's. "eager": not
compiled; otherwise forward and backward are compiled in that mode of `torch.compile`.

| model | products | workbook tokens/s | PyTorch | its tokens/s | ratio | spread | MiB |
|---|---|---|---|---|---|---|---|
EOF
    rows torch
  } | section 50-torch
}

# --- all-reduce -------------------------------------------------------------------------------------

run_allreduce() {
  if ((gpus < 2)); then
    left_out "$1" "there is one GPU only"
  elif [[ -n $no_nccl ]]; then
    left_out "$1" "$no_nccl"
  else
    part "$1" 280 "$programs/bench_allreduce" --ranks "$gpus" --device cuda --comm nccl \
      --largest 268435456 || true
  fi
}

show_allreduce() {
  {
    printf '\n## All-reduce between GPUs\n\n'
    echo "Over NCCL: $outcome."
    if [[ -f $logs/allreduce.log ]]; then
      printf '\n```\n'
      cat "$logs/allreduce.log"
      printf '```\n'
    fi
  } | section 60-allreduce
}
