#!/usr/bin/env bash
# run.sh of a bundle (scripts/gpu_run.sh) on a machine whose programs, loader and libraries are stand-ins:
# what is missing is told in one line; what was run is not run again, also after a run that was cut off, and
# on another copy of the bundle.
set -euo pipefail
source_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d -t gpu-run.XXXXXX)
trap 'rm -rf "$folder"' EXIT
root=$folder/gpu-bundle

fail() {
  printf 'failed: %s\n' "$*" >&2
  exit 1
}

# stub FILE: a program, from stdin.
stub() {
  mkdir -p "$(dirname -- "$folder/$1")"
  { echo '#!/usr/bin/env bash' && cat; } >"$folder/$1"
  chmod +x "$folder/$1"
}

mkdir -p "$root"/{scripts,tests/gpu} "$folder/toolkit/lib64"
cp "$source_root/scripts/gpu_run.sh" "$root/run.sh"
cp "$source_root"/scripts/{setup,gpu_machine,gpu_pieces,gpu_parts,gpu_record}.sh "$root/scripts"
touch "$root/tests/gpu"/{first,nccl_pair,second}_test.cpp
cat >"$root/bundle.txt" <<EOF
version v1
processor p9000
loader $folder/loader
glibc 2.36
cuda 13.0
cublas libcublas.so.stand-in
architectures compute capability 8.0, 9.0
second gpu-bundle-cuda.tar.gz
EOF
stub bin/uname <<'EOF'
echo "${STAND_IN_PROCESSOR:-p9000}"
EOF
stub bin/getconf <<'EOF'
echo "glibc ${STAND_IN_GLIBC:-2.36}"
EOF
stub bin/nvidia-smi <<<'exit 9'
stub bin/ldconfig <<<'exit 1'
stub bin/python3 <<<'exit 1'
stub loader <<'EOF'
if [[ -e $STAND_INS/no-driver ]]; then echo "ERROR: ld.so: object '$2' from --preload cannot be preloaded"; fi
EOF
stub gpu-bundle/bin/devices <<'EOF'
[[ ":$LD_LIBRARY_PATH:" == *":$STAND_INS/toolkit/lib64:"* ]] || exit 5
if [[ -e $STAND_INS/devices ]]; then
  cat "$STAND_INS/devices"
  exit 1
fi
echo "Stand-in (GPU 0 of 1)"
EOF
stub gpu-bundle/bin/cuda_tests <<'EOF'
echo "$*" >>"$STAND_INS/calls"
if [[ "$*" == *second* && -e $STAND_INS/slow ]]; then sleep 60; fi
echo "[       OK ] Some.Test (0 ms)"
EOF
stub gpu-bundle/bin/lab01cuda_verdict <<<''
stub gpu-bundle/bin/bench_step <<<'exit 1'
stub gpu-bundle/tests/programs/device_test.sh <<<''
export PATH=$folder/bin:$PATH PYTHON=python3 STAND_INS=$folder CUDA_HOME=$folder/toolkit

# run CODE OPTION...: must end with that code; what it says is in $folder/out.
run() {
  local expected=$1 code=0
  shift
  "$root/run.sh" "$@" >"$folder/out" 2>&1 || code=$?
  ((code == expected)) || fail "run.sh $* ended with $code, not $expected: $(cat "$folder/out")"
}

# refused PART_OF_MESSAGE: in one line, and nothing was begun.
refused() {
  run 1 --out "$folder/results"
  (($(wc -l <"$folder/out") == 1)) || fail "more than one line: $(cat "$folder/out")"
  grep -qF "error: $1" "$folder/out" || fail "not '$1': $(cat "$folder/out")"
  [[ ! -e $root/log ]] || fail "'$1' left a folder"
}

STAND_IN_PROCESSOR=p7 refused 'this bundle is for p9000 processors'
STAND_IN_GLIBC=2.31 refused "this system's C library is glibc 2.31, and the bundle needs 2.36"
touch "$folder/no-driver"
refused 'there is no NVIDIA driver here: its library libcuda.so.1 is missing'
rm "$folder/no-driver"
refused 'this machine has no libcublas.so.stand-in, neither from a CUDA Toolkit nor from PyTorch: unpack'
touch "$folder/toolkit/lib64/libcublas.so.stand-in"
echo 'error: looking; holds no code for this GPU: configure again with its architecture in CMAKE_CUDA_ARCHITECTURES' \
  >"$folder/devices"
refused 'the GPU cannot be used: looking; holds no code for this GPU: compute capability 8.0, 9.0 are in this bundle'
echo 'CPU: no GPU can be used: the driver knows CUDA up to 12.4, this program was built with 13.0' >"$folder/devices"
refused 'the GPU cannot be used: the driver knows CUDA up to 12.4'
rm "$folder/devices"
mv "$folder/loader" "$folder/no-loader"
refused "this system has no $folder/loader"
mv "$folder/no-loader" "$folder/loader"

# calls NUMBER NAME: how often that test was run.
calls() {
  [[ $(grep -c "$2" "$folder/calls") == "$1" ]] || fail "$2 was not run $1 times: $(cat "$folder/calls" "$folder/out")"
}
recorded() {
  grep -qF -- "$1" "$folder/results/gpu-results.md" ||
    fail "the record lacks '$1': $(cat "$folder/out" "$folder/results/gpu-results.md")"
}

# Time ends during the second piece; the next run begins with it, in another copy of the bundle.
# (A busy machine may need a while to get there.)
touch "$folder/slow"
for seconds in 6 12 24 48; do
  rm -rf "$root/log" "$folder"/{results,calls}
  run 3 --only tests --for "$seconds" --out "$folder/results"
  if grep -q second "$folder/calls" 2>/dev/null; then break; fi
done
grep -q 'time is up' "$folder/out" || fail "does not say why it stops: $(cat "$folder/out")"
recorded '| first | 1 | 0 | 0 | passed |'
recorded '**Not run yet**: tests-second '
calls 1 second
rm -r "$folder/slow" "$root/log"
run 0 --only tests --out "$folder/results"
calls 1 first
calls 2 second
recorded '| second | 1 | 0 | 0 | passed |'
recorded '| nccl_pair | | | | left out: there is no NCCL here |'
recorded '| programs-rest | | | | passed |'
recorded '| version | v1, in a bundle for GPUs of compute capability 8.0, 9.0 |'
recorded "\`run.sh --only tests --for $seconds --out"
recorded '**Not run yet**: sanitizer step torch allreduce.'

# A piece that does not end is recorded as such, and not run again unless that is asked for.
touch "$folder/slow"
run 1 --fresh --only tests-second --limit 1 --out "$folder/results"
recorded '| second | | | | not finished after 1 s |'
recorded '| first | 1 | 0 | 0 | passed |'
run 1 --only tests-second --out "$folder/results"
calls 3 second
rm "$folder/slow"
run 0 --fresh --only tests-second
calls 4 second

run 1 --quick --only step
grep -q 'step-seed-float32 .*failed' "$folder/out" || fail "$(cat "$folder/out")"
calls 1 first
run 1 --only build
run 0 --help
grep -q '^  *--only PART' "$folder/out" || fail "--help says: $(cat "$folder/out")"
