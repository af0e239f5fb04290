#!/usr/bin/env bash
# ./workbook gpu: tests and times everything on this machine's GPU, and records the results.
#
#   ./workbook gpu [--quick] [--only PART[,PART]...] [--limit SECONDS] [--record FILE]
#     --quick          fewer tests under compute-sanitizer, fewer rounds
#     --only PART,...  only these parts: build, tests, sanitizer, step, torch, allreduce; or single
#                      pieces of them, by the names a run prints (memcheck-ops_cuda). The record keeps
#                      the results of earlier runs if the build and the GPUs are the same. Without
#                      build, nothing is configured, and only what the tests still need is built.
#     --limit SECONDS  no piece may take longer: for machines that end long commands. A build that
#                      was cut off continues from there the next time.
#     --record FILE    write the results there instead of docs/gpu-results.md
#
# Configures the existing build folder, and installs packages only if that fails. Each piece has a time
# limit; if one fails, the others still run. Logs are in build/student/gpu. Exits with 1 if there is no
# GPU or any piece in the record has failed.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/student"
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
# shellcheck source=scripts/gpu_record.sh
source "$root/scripts/gpu_record.sh"
# shellcheck source=scripts/gpu_parts.sh
source "$root/scripts/gpu_parts.sh"
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-15000}
programs="$build/bin"
logs="$build/gpu"
started=$(date -u '+%Y-%m-%d %H:%M UTC')
command_line="./workbook gpu${*:+ $*}"
usage="usage: ./workbook gpu [--quick] [--only PART[,PART]...] [--limit SECONDS] [--record FILE]"
quick=no
only=()
most_seconds=86400
record="$root/docs/gpu-results.md"

all_parts=(build tests sanitizer step torch allreduce)

# The pieces that a part consists of.
pieces_of() {
  local a b files=(ops_cuda attention_bfloat16_cuda) precisions=(float32 tf32 bfloat16)
  case $1 in
    build) printf '%s\n' build build-tests ;;
    tests | allreduce) echo "$1" ;;
    sanitizer)
      [[ $quick == yes ]] || files+=(copies_cuda precision_cuda recording_cuda llama_stage_cuda
        llama_stage_bfloat16_cuda)
      for a in "${files[@]}"; do for b in memcheck racecheck; do echo "$b-$a"; done; done
      ;;
    step) for a in "${precisions[@]}"; do for b in seed large; do echo "$1-$b-$a"; done; done ;;
    torch)
      [[ $quick == no ]] || precisions=(float32 bfloat16)
      for a in "${precisions[@]}"; do for b in seed large; do echo "$1-$b-$a"; done; done
      ;;
  esac
}

# is_wanted PART PIECE
is_wanted() { ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" $1 "* || " ${only[*]} " == *" $2 "* ]]; }

# The pieces of a part that are to be run.
wanted_pieces() {
  local piece
  for piece in $(pieces_of "$1"); do
    if is_wanted "$1" "$piece"; then echo "$piece"; fi
  done
}

check_only() {
  local name part known
  known=$(for part in "${all_parts[@]}"; do printf '%s\n' "$part" "$(pieces_of "$part")"; done)
  known=" $(awk '!seen[$0]++' <<<"$known" | xargs) "
  for name in ${only[@]+"${only[@]}"}; do
    [[ $known == *" $name "* ]] || fail "--only knows no '$name', but:$known"
  done
}

while (($#)); do
  case $1 in
    --quick) quick=yes ;;
    --only | --limit | --record)
      (($# >= 2)) || fail "$1 takes a value; $usage"
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --only=*) IFS=, read -ra only <<<"${1#--only=}" ;;
    --limit=*)
      most_seconds=${1#--limit=}
      [[ $most_seconds =~ ^[1-9][0-9]*$ ]] || fail "--limit takes a number of seconds; $usage"
      ;;
    --record=*) record=${1#--record=} ;;
    --help | -h)
      sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "$usage" ;;
  esac
  shift
done
check_only

find_gpu() {
  local remedy="see docs/gpu.md; without a GPU, ./workbook test runs every kernel on the emulation"
  command -v nvidia-smi >/dev/null || fail "there is no GPU here: nvidia-smi is missing; $remedy"
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)
  ((gpus > 0)) || fail "there is no GPU here: nvidia-smi lists none; $remedy"
}

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

# The toolkit may be newer than the build folder. Packages are checked only if configuring fails: on many
# machines with GPUs they come from elsewhere, and nothing can be installed.
configure_all() {
  (configure -DLAB_CUDA=AUTO) && return
  [[ -n $(missing_packages build) ]] || exit 1
  install_packages build
  configure -DLAB_CUDA=AUTO
}

# What all parts need. The tests' own fixtures build whatever else they need.
build_all() {
  configure_all
  [[ -n $(cached CMAKE_CUDA_COMPILER) ]] ||
    fail "there is no CUDA Toolkit of version 12 or newer to build with: see docs/gpu.md"
  attempt build 2400 cmake --build "$build" --parallel "$(build_jobs)" --target devices cuda_tests \
    bench_step bench_allreduce || {
    tail -n 15 "$logs/build.log" >&2
    fail "the build $outcome (full log: $logs/build.log); nothing was recorded"
  }
}

build_tests() { part build-tests 2400 ctest --preset gpu -R '^build[.]' || true; }

# The outcome of all runs in the record.
conclude() {
  local part piece missing=() failed
  failed=$(pieces_that failed 'not finished')
  for part in "${all_parts[@]:1}"; do
    for piece in $(pieces_of "$part"); do is_noted "$piece" || missing+=("$piece"); done
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
  echo "results: $(has_results && echo "$record" || echo none yet); logs: ${logs#"$root"/}"
  [[ -z $failed ]]
}

find_gpu
record=$(realpath -m -- "$record")
cd "$root"
mkdir -p "$logs"
if is_wanted build build; then build_all; fi
[[ -x $programs/cuda_tests && -x $programs/bench_step ]] ||
  fail "nothing is built yet: ./workbook gpu --only build"
device=$("$programs/devices")
[[ $device != CPU:* ]] || fail "the GPU cannot be used: ${device#CPU: }"
start_record "$(if ((${#only[@]})); then echo kept; else echo fresh; fi)"
describe_machine | section 10-machine
if is_wanted build build-tests; then build_tests; fi
[[ -z $(wanted_pieces tests) ]] || run_tests
[[ -z $(wanted_pieces sanitizer) ]] || run_sanitizer
[[ -z $(wanted_pieces step) ]] || run_benchmark
[[ -z $(wanted_pieces torch) ]] || compare_with_torch
[[ -z $(wanted_pieces allreduce) ]] || run_all_reduce
conclude
