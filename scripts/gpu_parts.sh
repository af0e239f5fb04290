# shellcheck shell=bash disable=SC2154
# The parts of ./workbook gpu: each runs its requested pieces, and writes its section of the record.
# Sourced by gpu.sh.

# in_full QUICK FULL: one of the two.
in_full() { if [[ $quick == yes ]]; then echo "$1"; else echo "$2"; fi; }

# A table of passed, failed and skipped tests by group (the first part of a test's name); then the names
# of those that failed or were skipped.
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

# The option that restricts racecheck to this project's kernels, if the tool has one: those of cuBLAS are
# many, slow under racecheck, and not ours to judge. Ours are all in namespaces that begin with "lab".
own_kernels() {
  local help option
  help=$("$sanitizer" --help 2>&1 || true)
  for option in --kernel-name --kernel-regex; do # newer; before version 2023.3
    if [[ $help == *"$option"* ]]; then
      echo "$option kns=lab"
      return
    fi
  done
}

# sanitize NAME SECONDS TOOL TEST...
sanitize() {
  local name=$1 limit=$2 tool=$3 options=()
  shift 3
  # Some tests provoke errors that calls return.
  if [[ $tool == memcheck ]]; then
    options=(--report-api-errors no)
  else
    read -ra options <<<"$(own_kernels)"
  fi
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

sanitize_piece() {
  local tool=${1%%-*} file=${1#*-}_test.cpp summary
  sanitize "$1" "$(in_full 240 900)" "$tool" --file "$file" || true
  note "$1" "$outcome"
  summary=$(cat "$logs/$1.log" "$logs/$1.err" | sed -n 's/^=* *\([A-Z]* SUMMARY: .*\)/\1/p')
  echo "| $tool | $file | $outcome | ${summary:--} |" >"$logs/row-$1.md"
}

run_sanitizer() {
  local tool piece problem pieces
  for tool in memcheck racecheck; do
    mapfile -t pieces < <(wanted_pieces sanitizer | grep "^$tool-" || true)
    ((${#pieces[@]})) || continue
    if sanitizer=$(toolkit_program compute-sanitizer); then
      problem=$(problem_with "$tool")
      problem=${problem:+not available here: $problem}
    else
      problem="left out: compute-sanitizer was not found"
    fi
    for piece in "${pieces[@]}"; do
      if [[ -z $problem ]]; then
        sanitize_piece "$piece"
      else
        note "$piece" "$problem"
        echo "| $tool | ${piece#*-}_test.cpp | $problem | - |" >"$logs/row-$piece.md"
      fi
    done
  done
  {
    cat <<'EOF'

## compute-sanitizer

Every tensor has its own allocation (`LAB_CUDA_CACHE=0`). racecheck checks only this project's kernels, memcheck
also those of cuBLAS.

| tool | tests | outcome | summary |
|---|---|---|---|
EOF
    # shellcheck disable=SC2046  # one argument per piece
    rows $(quick=no pieces_of sanitizer)
  } | section 30-sanitizer
}

# number FIELD: prints that field of the JSON object on stdin.
number() { sed -n 's/.*"'"$1"'":\([0-9.e+-]*\).*/\1/p'; }

# time_step MODEL PRECISION BATCH STEPS: prints its line of the table.
time_step() {
  local model=$1 precision=$2 batch=$3 steps=$4 name=step-$1-$2 json
  part "$name" 300 "$programs/bench_step" --device cuda --json --model "$model" \
    --precision "$precision" --batch "$batch" --steps "$steps" --warmup 20 --rounds 5 || {
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

run_benchmark() {
  local piece model precision
  for piece in $(wanted_pieces step); do
    IFS=- read -r _ model precision <<<"$piece"
    if [[ $model == seed ]]; then
      time_step seed "$precision" 3 "$(in_full 100 500)"
    else
      time_step large "$precision" 4 "$(in_full 10 50)"
    fi >"$logs/row-$piece.md"
  done
  {
    cat <<'EOF'

## Training step

The peak is the rate of a square matrix product of 4096 rows in the same precision, its operands rounded
beforehand, measured in alternation with the step. While the host only waits, the GPU is busy: it is busy for at
least that fraction of the step.

| model | products | ms | tokens/s | TFLOP/s of peak | share | host only waits | MiB |
|---|---|---|---|---|---|---|---|
EOF
    # shellcheck disable=SC2046
    rows $(pieces_of step)
  } | section 40-step
}

# against_torch MODEL PRECISION BATCH STEPS: prints its lines of the table.
against_torch() {
  local name=torch-$1-$2
  part "$name" "$(in_full 300 1500)" "${PYTHON:-python3}" "$root/tests/bench/compare_torch.py" \
    "$programs/bench_step" --device cuda --model "$1" --precision "$2" --batch "$3" --steps "$4" \
    --warmup 20 --vocab 4096 --table --rounds "$(in_full 2 5)" \
    --against eager default reduce-overhead || echo "| $1 | $2 | | $outcome | | | | |"
  sed 1,2d "$logs/$name.log" # the record has its own table head
}

compare_with_torch() {
  local piece model precision
  local problem="left out: ${PYTHON:-python3} has no PyTorch that sees the GPU"
  if "${PYTHON:-python3}" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
    >"$logs/torch.log" 2>&1; then problem=; fi
  for piece in $(wanted_pieces torch); do
    IFS=- read -r _ model precision <<<"$piece"
    if [[ -n $problem ]]; then
      note "$piece" "$problem"
      echo "| $model | $precision | | $problem | | | | |"
    elif [[ $model == seed ]]; then
      against_torch seed "$precision" 3 "$(in_full 100 300)"
    else
      against_torch large "$precision" 4 "$(in_full 5 20)"
    fi >"$logs/row-$piece.md"
  done
  {
    cat <<'EOF'

## Against PyTorch

The same model on the same GPU, in alternation; ratio: time of PyTorch's step over the workbook's. "eager": not
compiled; otherwise forward and backward are compiled in that mode of `torch.compile`.

| model | products | workbook tokens/s | PyTorch | its tokens/s | ratio | spread | MiB |
|---|---|---|---|---|---|---|---|
EOF
    # shellcheck disable=SC2046
    rows $(quick=no pieces_of torch)
  } | section 50-torch
}

run_all_reduce() {
  {
    printf '\n## All-reduce between GPUs\n\n'
    if ((gpus < 2)); then
      note allreduce "left out: there is one GPU only"
      echo "Left out: there is one GPU only."
    else
      part allreduce 300 "$programs/bench_allreduce" --ranks "$gpus" --device cuda --comm nccl \
        --largest 268435456 || true
      echo "Over NCCL: $outcome."
      printf '\n```\n'
      cat "$logs/allreduce.log"
      printf '```\n'
    fi
  } | section 60-allreduce
}
