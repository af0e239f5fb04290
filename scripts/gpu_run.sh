#!/usr/bin/env bash
# run.sh of a bundle that ./workbook gpu --bundle has made: what ./workbook gpu does, on a machine that has
# an NVIDIA driver and nothing else: no compiler, no CMake, no packages.
#
#   run.sh [--out DIR] [--quick] [--only PART[,PART]...] [--for SECONDS] [--limit SECONDS] [--fresh]
#     --out DIR        also write there, after every piece: gpu-results.md, the record, and
#                      gpu-logs.tar.gz, all logs. If DIR has these of an earlier run, it goes on there.
#     --quick          fewer tests under compute-sanitizer, fewer rounds
#     --only PART,...  only these parts: tests, sanitizer, step, torch, allreduce; or single pieces of
#                      them, by the names a run prints (memcheck-ops_cuda)
#     --for SECONDS    stop after so long with exit code 3; the same command continues. For machines that
#                      end long commands.
#     --limit SECONDS  no piece may take longer (290)
#     --fresh          run again what the record has already
#
# Each piece has a time limit; if one fails or does not end, the others still run. What the record has is
# not run again. Exits with 1 if the GPU cannot be used, or if any piece in the record has failed.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
build=$root
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
# shellcheck source=scripts/gpu_pieces.sh
source "$root/scripts/gpu_pieces.sh"
# shellcheck source=scripts/gpu_record.sh
source "$root/scripts/gpu_record.sh"
# shellcheck source=scripts/gpu_parts.sh
source "$root/scripts/gpu_parts.sh"
# shellcheck source=scripts/gpu_machine.sh
source "$root/scripts/gpu_machine.sh"
programs=$root/bin
logs=$root/log
record=$logs/gpu-results.md
started=$(date -u '+%Y-%m-%d %H:%M UTC')
command_line="run.sh${*:+ $*}"
usage="usage: run.sh [--out DIR] [--quick] [--only PART[,PART]...] [--for SECONDS] [--limit SECONDS] [--fresh]"
quick=no
resume=yes
only=()
most_seconds=290
all_seconds=86400
out=

while (($#)); do
  case $1 in
    --quick) quick=yes ;;
    --fresh) resume=no ;;
    --out | --only | --for | --limit)
      (($# >= 2)) || fail "$1 takes a value; $usage"
      set -- "$1=$2" "${@:3}"
      continue
      ;;
    --out=*) out=$(realpath -m -- "${1#--out=}") ;;
    --only=*) IFS=, read -ra only <<<"${1#--only=}" ;;
    --for=* | --limit=*)
      [[ ${1#*=} =~ ^[1-9][0-9]*$ ]] || fail "${1%%=*} takes a number of seconds; $usage"
      if [[ $1 == --for=* ]]; then all_seconds=${1#*=}; else most_seconds=${1#*=}; fi
      ;;
    --help | -h)
      sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) fail "$usage" ;;
  esac
  shift
done
check_only "${parts[@]}"

# Called whenever the record was written.
copy_out() {
  [[ -n $out ]] || return 0
  cp "$record" "$out"
  tar -czf "$out/gpu-logs.tar.gz.new" -C "$logs" .
  mv "$out/gpu-logs.tar.gz.new" "$out/gpu-logs.tar.gz"
}

# Results of an earlier run, if this copy of the bundle has not run yet.
take_over() {
  [[ -n $out && ! -e $logs && -f $out/gpu-logs.tar.gz ]] || return 0
  mkdir -p "$logs"
  tar -xzf "$out/gpu-logs.tar.gz" -C "$logs" || fail "$out/gpu-logs.tar.gz cannot be read: remove it, to start again"
}

check_machine
use_gpu
if [[ -n $out ]]; then mkdir -p "$out" || fail "cannot write to $out"; fi
take_over
mkdir -p "$logs" || fail "cannot write to $root: unpack the bundle where you may write"
build_facts="| version | $(known version), in a bundle for GPUs of $(known architectures) |
| toolkit | $(known cuda) |
| NCCL | ${no_nccl:-$(basename -- "$(readlink -f "$nccl")")} |"
start_record "$(if [[ $resume == no && ${#only[@]} -eq 0 ]]; then echo fresh; else echo kept; fi)"
describe_machine | section 10-machine
run_parts
conclude
