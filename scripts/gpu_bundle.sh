#!/usr/bin/env bash
# What ./workbook gpu --bundle does: builds everything that ./workbook gpu runs, for GPUs of several kinds and
# any processor of this kind, and packs it with the libraries that it needs. On a machine that has an NVIDIA
# driver and nothing else: tar -xzf gpu-bundle.tar.gz; gpu-bundle/run.sh
#
#   scripts/gpu_bundle.sh FILE ARCHITECTURES
#
# cuBLAS and NCCL, which are hundreds of megabytes, go into a second archive, FILE with "-cuda": many machines
# have them, with PyTorch or a CUDA Toolkit. The C library and the driver's libraries are those of the machine.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/gpu-bundle
# shellcheck source=scripts/setup.sh
source "$root/scripts/setup.sh"
file=$(realpath -m -- "$1")
second=${file%.tar.gz}-cuda.tar.gz
architectures=$2
pack=$build/pack/gpu-bundle
log=$build/bundle.log

programs=(devices cuda_tests lab01cuda_verdict lab01cuda_ranks_gpu bench_step bench_allreduce
  lab0{1,2,3,4,5,6,8,9}_solution train_solution)
# Shared objects that programs load: TARGET FILE.
loaded=(lab01cuda_shared_solution_gpu implementations/lab01cuda/solution_gpu.so)
# What programs and scripts read, and the sources of the tests, for those who look into a failure.
files=(scripts/{setup,gpu_machine,gpu_pieces,gpu_parts,gpu_record}.sh data/stories.txt data/tokenizer.model
  labs/01cuda_kernels/points.json tests/gpu tests/programs/{device_test,helpers}.sh
  tests/bench/{compare_torch,torch_step}.py)
# Libraries of the C library's package.
system='^(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt)[-.]'

[[ $architectures =~ ^[0-9]+(,[0-9]+)*$ ]] ||
  fail "--arch takes compute capabilities without the dot, such as 80,90: not $architectures"
[[ $file == *.tar.gz ]] || fail "a bundle is a file NAME.tar.gz: not $1"
mkdir -p "$build" "$(dirname -- "$file")"

# Machine code for each kind of GPU; for later ones, code that the driver compiles. Programs find their
# libraries and files from where they are.
configure_bundle() {
  local real=${architectures//,/-real;} fresh=()
  [[ $(cached CMAKE_HOME_DIRECTORY) == "$root" ]] || fresh=(--fresh)
  cmake "${fresh[@]}" -S "$root" -B "$build" -G Ninja -DLAB_CUDA=ON -DLAB_NATIVE=OFF -DLAB_SOURCE_DIR=.. \
    "-DCMAKE_CUDA_ARCHITECTURES=$real" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
    "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags" >"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    fail "the bundle cannot be configured: see above"
  }
}

# libraries_of FILE...: "SONAME PATH" of each shared library that these need.
libraries_of() { ldd "$@" | awk '$2 == "=>" { print $1, $3 }'; }

# The same of those that programs load when they use a GPU, and of what these need.
libraries_of_gpus() {
  local file
  for file in "$(cached CUDA_cublas_LIBRARY)" "$(cached NCCL_LIBRARY)"; do
    [[ -f $file ]] || continue
    printf '%s %s\n' "$(readelf -d "$file" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')" "$file"
    LD_LIBRARY_PATH=$(dirname -- "$file") libraries_of "$file"
  done
}

collect() {
  local program item name path
  rm -rf "$pack"
  mkdir -p "$pack"/{bin,lib/cuda}
  for program in "${programs[@]}"; do strip -o "$pack/bin/$program" "$build/bin/$program"; done
  for item in "${loaded[@]:1}"; do
    mkdir -p "$pack/$(dirname -- "$item")"
    strip -o "$pack/$item" "$build/$item"
  done
  for item in "${files[@]}"; do
    mkdir -p "$pack/$(dirname -- "$item")"
    cp -R "$root/$item" "$pack/$item"
  done
  cp "$root/scripts/gpu_run.sh" "$pack/run.sh"
  while read -r name path; do
    if [[ $name =~ ^lib(cublas|nccl) ]]; then
      cp -L "$path" "$pack/lib/cuda/$name"
    elif [[ ! $name =~ $system ]]; then
      [[ $path == /* ]] || fail "$name, which the programs need, is not on this machine"
      cp -L "$path" "$pack/lib/$name"
    fi
  done < <({ libraries_of "$build"/bin/* "$build/${loaded[1]}" && libraries_of_gpus; } | sort -u)
  describe >"$pack/bundle.txt"
}

describe() {
  local cublas
  cublas=$(cd "$pack/lib/cuda" && echo libcublas.so.*)
  cat <<EOF
version $(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
processor $(uname -m)
loader $(readelf -p .interp "$pack/bin/devices" | grep -o '/.*')
glibc $(cat "$pack"/bin/* "$pack"/lib/*.so* | grep -aoE 'GLIBC_2[.][0-9]+' | sort -uV | tail -n 1 | sed 's/.*_//')
cuda $("$(cached CUDAToolkit_NVCC_EXECUTABLE)" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
cublas $cublas
architectures compute capability $(sed 's/\([0-9]*\)\([0-9]\)/\1.\2/g; s/,/, /g' <<<"$architectures")
second $(basename -- "$second")
EOF
}

# Programs and libraries, compressed four times as well as gzip does it, because all programs contain the same
# kernels; and xz, which the other machine may lack.
compress_programs() {
  local xz
  xz=$(command -v xz)
  tar -C "$pack" --sort=name --owner=0 --group=0 --numeric-owner --exclude=lib/cuda -cf - bin implementations lib |
    xz -T1 --lzma2=preset=2,dict=64MiB >"$pack/programs.tar.xz"
  mkdir -p "$pack/xz"
  cp -L "$xz" "$(ldd "$xz" | awk '$1 ~ /^liblzma/ { print $3 }')" "$pack/xz"
}

# archive FILE PATH...
archive() {
  local to=$1
  shift
  tar -C "$build/pack" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$@" | gzip -6 >"$to.new"
  mv "$to.new" "$to"
  printf '%4d MB  %s\n' $(($(stat -c %s "$to") / 1000000)) "$to"
}

for tool in readelf strip xz; do
  command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install binutils xz-utils"
done
check_tools
configure_bundle
build_targets "${programs[@]}" "${loaded[0]}"
collect
compress_programs
archive "$file" gpu-bundle/{run.sh,bundle.txt,programs.tar.xz,xz,scripts,data,labs,tests}
archive "$second" gpu-bundle/lib/cuda
echo "On the machine with the GPU: tar -xzf $(basename -- "$file") && gpu-bundle/run.sh --out results"
echo "If it has no cuBLAS, from PyTorch or a CUDA Toolkit: also tar -xzf $(basename -- "$second")"
