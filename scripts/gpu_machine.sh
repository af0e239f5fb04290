# shellcheck shell=bash disable=SC2034,SC2154
# Whether a bundle can run on this machine, and where its CUDA libraries are. Each obstacle ends run.sh with
# one line. Sourced by gpu_run.sh, which sets `root` and `programs`.

# known FACT: a line of the bundle's own description, bundle.txt: "FACT VALUE".
known() { sed -n "s/^$1 //p" "$root/bundle.txt"; }

check_machine() {
  local missing=() tool
  for tool in awk cksum cmp cp date dirname grep head mktemp od paste readlink realpath sed seq sort tail tar \
    timeout tr uname xargs; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  ((${#missing[@]} == 0)) || fail "this machine lacks ${missing[*]}: install them (coreutils, diffutils, and so on)"
  [[ $(uname -m) == "$(known processor)" ]] ||
    fail "this bundle is for $(known processor) processors, and this machine's is $(uname -m): make the bundle on a" \
      "machine with such a processor"
  loader=$(known loader)
  [[ -x $loader ]] || fail "this system has no $loader: the bundle needs the GNU C library"
  check_glibc "$(known glibc)" "$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')"
  unpack_programs
  check_driver
  find_cuda_libraries
}

# Once: with the bundle's own xz, because the machine may have none.
unpack_programs() {
  [[ -f $root/programs.tar.xz ]] || return 0
  "$loader" --library-path "$root/xz" "$root/xz/xz" -dc "$root/programs.tar.xz" | tar -xf - -C "$root" ||
    fail "the bundle's programs cannot be unpacked in $root: is there room, and is the archive complete?"
  rm "$root/programs.tar.xz"
}

# check_glibc NEEDED FOUND
check_glibc() {
  [[ -z $2 || $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]] ||
    fail "this system's C library is glibc $2, and the bundle needs $1: make the bundle on a system as old as this"
}

# The library that comes with the driver. Some containers have it in a folder that the loader does not search.
check_driver() {
  local folder
  for folder in '' /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
    if [[ -z $folder ]]; then
      loads libcuda.so.1 && return
    elif [[ -e $folder/libcuda.so.1 ]]; then
      search_also "$folder"
      return
    fi
  done
  fail "there is no NVIDIA driver here: its library libcuda.so.1 is missing (in a container: start it with --gpus all)"
}

# loads NAME: the loader finds this library.
loads() { [[ $("$loader" --preload "$1" --list "$programs/devices" 2>&1) != *"object '$1' from "* ]]; }

search_also() { export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$1; }

# Folders in which CUDA's libraries may be: of a toolkit, or of PyTorch.
cuda_folders() {
  local toolkits=(/usr/local/cuda /usr/local/cuda-*)
  if [[ -n ${CUDA_HOME:-} ]]; then toolkits=("$CUDA_HOME"); fi
  printf '%s\n' "$root/lib/cuda" "${toolkits[@]/%//lib64}" "${toolkits[@]/%//lib}"
  "${PYTHON:-python3}" -c 'import sys; print("\n".join(sys.path))' 2>/dev/null | while read -r path; do
    if [[ -n $path ]]; then printf '%s\n' "$path"/nvidia/*/lib; fi
  done
}

# find_library NAME: prints its path; nothing if it is nowhere.
find_library() {
  local folder
  while read -r folder; do
    if [[ -e $folder/$1 ]]; then
      echo "$folder/$1"
      return
    fi
  done < <(cuda_folders)
  PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | sed -n "s/^[[:space:]]*$1 .*=> //p" | head -n 1 || true
}

# cuBLAS must be somewhere. NCCL is needed with several GPUs only.
find_cuda_libraries() {
  local cublas library
  library=$(known cublas)
  cublas=$(find_library "$library")
  [[ -n $cublas ]] ||
    fail "this machine has no $library, neither from a CUDA Toolkit nor from PyTorch: unpack the bundle's second" \
      "archive, $(known second), in the same place"
  search_also "$(dirname -- "$cublas")"
  nccl=$(find_library libnccl.so.2)
  no_nccl=
  if [[ -n $nccl ]]; then search_also "$(dirname -- "$nccl")"; else no_nccl="there is no NCCL here"; fi
}

# Sets device and gpus, or says why there is none.
use_gpu() {
  local code=0
  device=$("$programs/devices" 2>&1) || code=$?
  device=${device##*$'\n'}
  device=${device#error: }
  device=${device/no GPU can be used: /}
  device=${device/configure again with its architecture in CMAKE_CUDA_ARCHITECTURES/$(known architectures) are in this bundle}
  [[ $code == 0 && $device != CPU:* ]] || fail "the GPU cannot be used: ${device#CPU: }"
  gpus=${device##*of }
  gpus=${gpus%)}
}
