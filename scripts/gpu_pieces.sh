# shellcheck shell=bash disable=SC2034,SC2154
# The names of all pieces of ./workbook gpu, and which of them are to be run. Sourced by gpu.sh and
# gpu_run.sh, which set `root`, `quick`, `only` and `resume`.

parts=(tests sanitizer step torch allreduce)

# Files of tests/gpu, whatever they are; those for the emulation need it.
cuda_test_files() {
  local file
  for file in "$root"/tests/gpu/*_test.cpp; do
    file=$(basename -- "$file" _test.cpp)
    [[ $file == *_emulated ]] || echo "$file"
  done
}

# The pieces that a part consists of.
pieces_of() {
  local a b c files=(ops_cuda attention_bfloat16_cuda) precisions=(float32 tf32 bfloat16)
  case $1 in
    build) printf '%s\n' build build-tests ;;
    tests)
      for a in $(cuda_test_files); do echo "tests-$a"; done
      echo tests-lab01cuda
      for a in 01 02 03 04 05 06 08 09 train rest; do echo "tests-programs-$a"; done
      echo tests-nccl_on_one_gpu # the slowest: over 200 s
      ;;
    sanitizer)
      [[ $quick == yes ]] || files+=(copies_cuda precision_cuda recording_cuda llama_stage_cuda
        llama_stage_bfloat16_cuda)
      for a in "${files[@]}"; do for b in memcheck racecheck; do echo "$b-$a"; done; done
      ;;
    step) for a in "${precisions[@]}"; do for b in seed large; do echo "$1-$b-$a"; done; done ;;
    torch)
      [[ $quick == no ]] || precisions=(float32 bfloat16)
      for a in "${precisions[@]}"; do
        for b in seed large; do
          for c in eager default reduce-overhead; do echo "$1-$b-$a-$c"; done
        done
      done
      ;;
    allreduce) echo "$1" ;;
  esac
}

# is_wanted PART PIECE: asked for with --only, and, with --resume, not in the record yet.
is_wanted() {
  ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" $1 "* || " ${only[*]} " == *" $2 "* ]] || return 1
  [[ $resume == no ]] || ! is_noted "$2"
}

# The pieces of a part that are to be run.
wanted_pieces() {
  local piece
  for piece in $(pieces_of "$1"); do
    if is_wanted "$1" "$piece"; then echo "$piece"; fi
  done
}

# check_only PART...: --only names these parts, or pieces of them.
check_only() {
  local name part known
  known=$(for part; do printf '%s\n' "$part" "$(pieces_of "$part")"; done)
  known=" $(awk '!seen[$0]++' <<<"$known" | xargs) "
  for name in ${only[@]+"${only[@]}"}; do
    [[ $known == *" $name "* ]] || fail "--only knows no '$name', but:$known"
  done
}

# in_full QUICK FULL: one of the two.
in_full() { if [[ $quick == yes ]]; then echo "$1"; else echo "$2"; fi; }
