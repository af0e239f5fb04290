#!/usr/bin/env bash
# ./workbook gpu: tests and times everything on this machine's GPU, and records the results.
#
#   ./workbook gpu [--quick] [--only PART[,PART]...] [--resume] [--limit SECONDS] [--record FILE]
#   ./workbook gpu --bundle [FILE] [--arch LIST]
#     --quick          fewer tests under compute-sanitizer, fewer rounds
#     --only PART,...  only these parts: build, tests, sanitizer, step, torch, allreduce; or single
#                      pieces of them, by the names a run prints (memcheck-ops_cuda). The record keeps
#                      the results of earlier runs if the build and the GPUs are the same. Without
#                      build, nothing is configured, and only what the tests still need is built.
#     --resume         only what the record does not have yet
#     --limit SECONDS  no piece may take longer: for machines that end long commands. A build that
#                      was cut off continues from there the next time.
#     --record FILE    write the results there instead of docs/gpu-results.md
#     --bundle [FILE]  do not run anything: build here, for a machine that has an NVIDIA driver and
#                      nothing else, and pack what runs there (scripts/gpu_bundle.sh)
#     --arch LIST      which GPUs the bundle has machine code for: compute capabilities without the
#                      dot, such as 80,90 (default). That of 8.0 also runs on 8.6 and 8.9; newer GPUs
#                      than the last one get code that their driver compiles.
#
# Configures the existing build folder, and installs packages only if that fails. Each piece has a time
# limit; if one fails, the others still run. Logs are in build/student/gpu. Exits with 1 if there is no
# GPU or any piece in the record has failed.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/student"
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
# shellcheck source=scripts/gpu_pieces.sh
source "$root/scripts/gpu_pieces.sh"
# shellcheck source=scripts/gpu_record.sh
source "$root/scripts/gpu_record.sh"
# shellcheck source=scripts/gpu_parts.sh
source "$root/scripts/gpu_parts.sh"
programs="$build/bin"
logs="$build/gpu"
started=$(date -u '+%Y-%m-%d %H:%M UTC')
command_line="./workbook gpu${*:+ $*}"
usage="usage: ./workbook gpu [--quick] [--only PART[,PART]...] [--resume] [--limit SECONDS] [--record FILE], \
or: ./workbook gpu --bundle [FILE] [--arch LIST]"
quick=no
resume=no
only=()
most_seconds=86400
all_seconds=$most_seconds
no_nccl= # a build without it says so itself
record="$root/docs/gpu-results.md"

bundle=
architectures=80,90
while (($#)); do
  case $1 in
    --quick) quick=yes ;;
    --resume) resume=yes ;;
    --bundle)
      bundle=$root/build/gpu-bundle.tar.gz
      if (($# >= 2)) && [[ $2 != --* ]]; then
        bundle=$2
        shift
      fi
      ;;
    --only | --limit | --record | --arch)
      (($# >= 2)) || fail "$1 takes a value; $usage"
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --bundle=*) bundle=${1#--bundle=} ;;
    --arch=*) architectures=${1#--arch=} ;;
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
if [[ -n $bundle ]]; then
  exec "$root/scripts/gpu_bundle.sh" "$bundle" "$architectures"
fi
check_only build "${parts[@]}"

find_gpu() {
  local remedy="see docs/gpu.md; without a GPU, ./workbook test runs every kernel on the emulation"
  command -v nvidia-smi >/dev/null || fail "there is no GPU here: nvidia-smi is missing; $remedy"
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true)
  ((gpus > 0)) || fail "there is no GPU here: nvidia-smi lists none; $remedy"
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
  attempt build 2400 bash cmake/build.sh "$root" "$build" --parallel "$(build_jobs)" --target \
    devices cuda_tests bench_step bench_allreduce || {
    tail -n 15 "$logs/build.log" >&2
    fail "the build $outcome (full log: $logs/build.log); nothing was recorded"
  }
}

build_tests() { part build-tests 2400 ctest --preset gpu -R '^build[.]' || true; }

# Lines of the record's table about the build.
describe_build() {
  local nvcc nccl
  nvcc=$(toolkit_program nvcc || true)
  nccl=$(/sbin/ldconfig -p 2>/dev/null | sed -n 's/.*=> \(.*libnccl\.so\..*\)/\1/p' | head -n 1)
  cat <<EOF
| version | $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown) |
| toolkit | $("${nvcc:-nvcc}" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p' || true) |
| NCCL | $(if [[ -n $nccl ]]; then basename "$(readlink -f "$nccl")"; else echo none; fi) |
EOF
}

copy_out() { :; }

find_gpu
record=$(realpath -m -- "$record")
cd "$root"
mkdir -p "$logs"
touch "$logs/outcomes"
if is_wanted build build; then build_all; fi
[[ -x $programs/cuda_tests && -x $programs/bench_step ]] ||
  fail "nothing is built yet: ./workbook gpu --only build"
device=$("$programs/devices")
[[ $device != CPU:* ]] || fail "the GPU cannot be used: ${device#CPU: }"
start_record "$(if [[ $resume == yes || ${#only[@]} -gt 0 ]]; then echo kept; else echo fresh; fi)"
build_facts=$(describe_build)
describe_machine | section 10-machine
if is_wanted build build-tests; then build_tests; fi
run_parts
conclude
