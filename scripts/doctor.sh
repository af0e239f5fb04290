#!/usr/bin/env bash
# ./workbook doctor: shows what was found on this machine, and how to get what is missing.
# Exits with 1 if anything the labs need is missing.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build/student"
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"

needed_missing=0

# line MARK NAME WHAT...: one line of the list.
line() {
  local mark=$1 name=$2
  shift 2
  printf '  %-8s %-22s %s\n' "$mark" "$name" "$*"
}
found() { line found "$@"; }
optional() { line '-' "$@"; }
missing() {
  line MISSING "$@"
  needed_missing=1
}

# The first line that `command` prints, or nothing.
first_line() { "$@" 2>/dev/null | head -n 1 || true; }

report_system() {
  echo "System"
  local name="unknown"
  if [[ -r /etc/os-release ]]; then name=$(. /etc/os-release && echo "${PRETTY_NAME:-$ID}"); fi
  if grep -qi microsoft /proc/version 2>/dev/null; then name="$name in WSL"; fi
  if command -v apt-get >/dev/null; then
    found system "$name, $(uname -m)"
  else
    missing system "$name, $(uname -m): no apt-get; use the container (README.md, Other machines)"
  fi

  local quota period
  found cores "$(nproc), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
  # As cpu_gains_by_bfloat16() (common/ops/precision.h) says.
  if grep -qw amx_bf16 /proc/cpuinfo ||
    { grep -qw avx512_bf16 /proc/cpuinfo && ! grep -q 'GenuineIntel' /proc/cpuinfo; }; then
    found bfloat16 "--precision bfloat16 trains faster on this processor"
  else
    optional bfloat16 "--precision float32, the default, is faster on this processor"
  fi
  if read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max && [[ $quota != max ]]; then
    optional "cores" "this container may use only $((quota / period)) of them: pass --threads"
  fi

  local memory free
  memory=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
  if ((memory >= 3500)); then
    found memory "$memory MB"
  else
    missing memory "$memory MB: builds need 4 GB; close other programs or use another machine"
  fi
  free=$(df -Pm "$root" | awk 'NR == 2 { print $4 }')
  if ((free >= 2000)); then
    found disk "$free MB free for $root"
  else
    missing disk "$free MB free for $root: make room for 2 GB"
  fi
  if [[ -w $root ]]; then
    found "write access" "$root"
  else
    missing "write access" "$root is read-only: copy the folder to a place you can write to"
  fi
}

report_tools() {
  echo "Compiler and build"
  local tool
  for tool in "${CXX:-g++}" cmake ninja; do
    if command -v "$tool" >/dev/null; then
      found "$tool" "$(first_line "$tool" --version)"
    else
      missing "$tool" "./workbook setup installs it"
    fi
  done
  if [[ -f $build/CMakeCache.txt ]]; then
    found "build folder" "build/student, tuned for this processor: $(cached LAB_NATIVE)"
  else
    optional "build folder" "not made yet: ./workbook setup"
  fi
}

report_libraries() {
  echo "Libraries (Debian packages)"
  local package version
  for package in $(packages build); do
    case $package in g++ | cmake | ninja-build) continue ;; esac  # shown above
    version=$(dpkg-query -W -f '${db:Status-Abbrev}${Version}' "$package" 2>/dev/null || true)
    if [[ $version == ii* ]]; then
      found "$package" "${version#ii }"
    else
      missing "$package" "./workbook setup installs it"
    fi
  done
}

report_gpu() {
  echo "GPU (optional: every lab runs without one)"
  local gpu nvcc nccl
  gpu=$(first_line nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader)
  if [[ -n $gpu ]]; then
    found GPU "$gpu"
  else
    optional GPU "nvidia-smi lists none: the labs run on the CPU"
  fi
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  if [[ -n $nvcc ]]; then
    found "CUDA toolkit" "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p') ($nvcc)"
  else
    optional "CUDA toolkit" "not found; if you have a GPU, get version 12 or newer from developer.nvidia.com"
  fi
  nccl=$(/sbin/ldconfig -p 2>/dev/null | sed -n 's/^[[:space:]]*\(libnccl\.so[^ ]*\).*=> /\1 /p' |
    head -n 1)
  if [[ -n $nccl ]]; then
    found NCCL "$nccl"
  else
    optional NCCL "not found; if you have several GPUs, install libnccl-dev from NVIDIA's repository"
  fi
  if [[ -x $build/bin/devices ]]; then
    found "--device auto" "$("$build/bin/devices" 2>&1)"
  fi
}

report_extras() {
  echo "For other commands (installed when first used)"
  local group
  for group in check slides book; do
    if [[ -z $(missing_packages "$group") ]]; then
      found "$group" "$(packages "$group" | xargs)"
    else
      optional "$group" "$(missing_packages "$group" | xargs)"
    fi
  done
}

report_system
report_tools
report_libraries
report_gpu
report_extras
echo
if ((needed_missing)); then
  echo "Something is missing: see above. ./workbook setup installs missing packages."
  exit 1
fi
echo "Everything the labs need is here."
