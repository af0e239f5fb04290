#!/usr/bin/env bash
# scripts/gpu.sh on a machine whose GPU, compiler and test runner are stand-ins: it installs nothing
# that it can do without, goes on after a piece that fails, records what happened, in one run or in
# several, and leaves the record alone where there is no GPU.
set -euo pipefail
source_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
root=$(mktemp -d -t gpu-script.XXXXXX)
trap 'rm -rf "$root"' EXIT

fail() {
  printf 'failed: %s\n' "$*" >&2
  exit 1
}

# stub FILE: a program, from stdin.
stub() {
  mkdir -p "$(dirname -- "$root/$1")"
  { echo '#!/usr/bin/env bash' && cat; } >"$root/$1"
  chmod +x "$root/$1"
}

mkdir -p "$root"/{scripts,cmake,docs,build/student,tests/gpu}
cp "$source_root"/scripts/{gpu,gpu_bundle,gpu_pieces,gpu_parts,gpu_record,setup}.sh "$root/scripts"
cp "$source_root/cmake/build.sh" "$root/cmake"
touch "$root"/tests/gpu/{good,bad,nccl_pair,only_emulated}_test.cpp
cp "$source_root/packages.txt" "$root"
cat >"$root/build/student/CMakeCache.txt" <<EOF
CMAKE_HOME_DIRECTORY:INTERNAL=$root
CMAKE_GENERATOR:INTERNAL=Ninja
CMAKE_CUDA_COMPILER:FILEPATH=$root/toolkit/nvcc
EOF
# Packages that dpkg does not know of; cmake may find their files all the same.
stub bin/dpkg-query <<<'exit 1'
stub bin/apt-get <<'EOF'
touch "$STAND_INS/apt-was-asked"
EOF
stub bin/sudo <<'EOF'
if [[ $1 == -n ]]; then shift; fi
exec "$@"
EOF
stub bin/cmake <<'EOF'
if [[ $1 == --version ]]; then echo "cmake version 3.25.1"; fi
[[ ! -e $STAND_INS/packages-are-needed || -e $STAND_INS/apt-was-asked ]]
EOF
stub toolkit/compute-sanitizer <<'EOF'
[[ $LAB_CUDA_CACHE == 0 ]] || exit 5
if [[ -e $STAND_INS/no-sanitizer ]]; then
  echo "========= Error: Device not supported."
  echo "========= ERROR SUMMARY: 1 error"
  exit 9
fi
if [[ $2 == memcheck ]]; then echo "========= ERROR SUMMARY: 0 errors"; exit; fi
if [[ "$*" == *gtest_filter* ]]; then echo "========= RACECHECK SUMMARY: 0 hazards"; exit; fi
echo "========= Error: Race reported between two accesses"
echo "========= RACECHECK SUMMARY: 1 hazard displayed"
exit 9
EOF
stub bin/ctest <<<''
stub bin/python3 <<<'exit 1'
stub build/student/bin/devices <<<'echo "Stand-in (GPU 0 of 1)"'
stub build/student/bin/cuda_tests <<'EOF'
case $* in
  *good*) echo "[       OK ] Good.One (0 ms)" ;;
  *nccl_pair*)
    echo "nccl_pair_test.cpp:7: Skipped"
    echo "one GPU"
    echo "[  SKIPPED ] Nccl.Pair (0 ms)"
    echo "[  SKIPPED ] Nccl.Pair"
    exit 77
    ;;
  *BroadcastAndReduce*)
    [[ $LAB_NCCL_SHARE_GPU == 1 ]] || exit 5
    echo "Duplicate GPU detected" >&2
    exit 1
    ;;
  *)
    echo "[       OK ] Bad.One (0 ms)"
    echo "[  FAILED  ] Bad.Two (1 ms)"
    echo "[  FAILED  ] Bad.Two"
    echo "[ RUN      ] Bad.Three"
    exit 139
    ;;
esac
EOF
stub build/student/bin/lab01cuda_verdict <<'EOF'
[[ $LAB_TEST_DEVICE == cuda && "$*" == "--implementation solution" ]]
EOF
stub tests/programs/device_test.sh <<'EOF'
[[ $1 == */bin && $2 == solution && $3 =~ ^(0[1-689]|train|rest)$ ]]
EOF
stub build/student/bin/bench_step <<'EOF'
if [[ "$*" == *large* && ! -e $STAND_INS/more-memory ]]; then
  echo "error: no memory" >&2
  exit 1
fi
if [[ "$*" == *large*bfloat16* ]]; then sleep 20; fi
if [[ "$*" == *seed*bfloat16* ]]; then
  echo "error: bfloat16 needs a GPU of compute capability 8.0 (Ampere) or newer, and GPU 0 has 7.5: use float32" >&2
  exit 1
fi
echo '{"milliseconds_per_step":1.5,"tokens_per_second":512000.5,"gflops":20000.0,' \
  '"matmul_gflops":50000,"share_of_matmul":0.4,"waiting_share":8e-1,"gpu_mib":123.5}'
EOF
export PATH=$root/bin:$PATH PYTHON=python3 STAND_INS=$root

record=$root/docs/gpu-results.md
# gpu CODE OPTION...: must end with that code; what it says is in $root/out.
gpu() {
  local expected=$1 code=0
  shift
  "$root/scripts/gpu.sh" "$@" >"$root/out" 2>&1 || code=$?
  ((code == expected)) || fail "gpu $* ended with $code, not $expected: $(cat "$root/out")"
}
# recorded LINE, not_recorded LINE: (not) a part of a line of the record.
recorded() {
  grep -qF -- "$1" "$record" || fail "the record lacks '$1':"$'\n'"$(cat "$root/out" "$record")"
}
not_recorded() {
  ! grep -qF -- "$1" "$record" || fail "the record has '$1':"$'\n'"$(cat "$root/out" "$record")"
}

# No GPU: one line, and the old record stays.
stub bin/nvidia-smi <<<'exit 9'
echo old >"$record"
gpu 1
(($(wc -l <"$root/out") == 1)) || fail "no GPU: $(cat "$root/out")"
grep -q 'error: there is no GPU here' "$root/out" || fail "no GPU: $(cat "$root/out")"
[[ $(cat "$record") == old ]] || fail "no GPU: the record was overwritten"

# A GPU on which half of it fails.
stub bin/nvidia-smi <<'EOF'
if [[ $1 == --list-gpus ]]; then echo "GPU 0: x"; else echo "1 MiB"; fi
EOF
gpu 1 --quick
[[ ! -e $root/apt-was-asked ]] || fail "installs packages although cmake can do without"
while read -r line; do recorded "$line"; done <<'EOF'
| command | `./workbook gpu --quick` |
| GPU | 1 x Stand-in, 1 MiB |
in time: tests-bad racecheck-ops_cuda racecheck-attention_bfloat16_cuda step-large-float32 step-large-tf32 step-large-bfloat16.
| good | 1 | 0 | 0 | passed |
| bad | 1 | 1 | 0 | failed (exit code 139): Bad.Two, Bad.Three did not end |
| nccl_pair | 0 | 0 | 1 | skipped: one GPU |
| nccl_on_one_gpu | | | | left out: NCCL does not let ranks share a GPU here: failed (exit code 1): Duplicate GPU detected |
| lab01cuda | | | | passed |
| programs-08 | | | | passed |
| programs-train | | | | passed |
| programs-rest | | | | passed |
| memcheck | ops_cuda_test.cpp | passed | ERROR SUMMARY: 0 errors |
| racecheck | ops_cuda_test.cpp | failed (exit code 9) | RACECHECK SUMMARY: 1 hazard displayed |
| seed, 3 sequences | tf32 | 1.50 | 512000 | 20.0 of 50.0 | 40 % | 80 % | 124 |
| large, 4 sequences | bfloat16 | failed (exit code 1): error: no memory |
| seed, 3 sequences | bfloat16 | left out: bfloat16 needs a GPU of compute capability 8.0 (Ampere) or newer, and GPU 0 has 7.5 |
| seed | float32 | | eager: left out: python3 has no PyTorch that sees the GPU |
Over NCCL: left out: there is one GPU only.
EOF
not_recorded 'Not run yet'
not_recorded only_emulated

# Some of it again: the rest of the record stays.
touch "$root/more-memory" "$root/no-sanitizer"
gpu 1 --quick --only sanitizer,step-large-float32,step-large-bfloat16 --limit 1
while read -r line; do recorded "$line"; done <<'EOF'
| command | `./workbook gpu --quick`, then `./workbook gpu --quick --only sanitizer,
in time: tests-bad step-large-tf32 step-large-bfloat16.
| good | 1 | 0 | 0 | passed |
| memcheck | ops_cuda_test.cpp | not available here: Error: Device not supported. | - |
| racecheck | ops_cuda_test.cpp | not available here: Error: Device not supported. | - |
| large, 4 sequences | float32 | 1.50 | 512000 | 20.0 of 50.0 | 40 % | 80 % | 124 |
| large, 4 sequences | tf32 | failed (exit code 1): error: no memory |
| large, 4 sequences | bfloat16 | not finished after 1 s |
EOF

# Of another build nothing can stay.
stub build/student/bin/cuda_tests <<<'exit 6'
gpu 0 --quick --only=step-seed-tf32
recorded '| seed, 3 sequences | tf32 | 1.50'
recorded 'Nothing failed'
recorded '**Not run yet**: tests sanitizer step-seed-float32 step-large-float32 step-large-tf32 '
not_recorded '| large,'
not_recorded 'compute-sanitizer'

# Building alone is no result; packages are installed where cmake fails without.
touch "$root/packages-are-needed"
stub build/student/bin/cuda_tests <<<'exit 5'
echo old >"$record"
gpu 0 --only build
[[ -e $root/apt-was-asked ]] || fail "does not install what cmake needs"
[[ $(cat "$record") == old ]] || fail "the record was overwritten by a build"

# A bundle needs no GPU, but a file and architectures; what it consists of is not tested here.
gpu 1 --bundle "$root/somewhere" --arch 90
grep -q 'error: a bundle is a file NAME.tar.gz: not ' "$root/out" || fail "$(cat "$root/out")"
gpu 1 --bundle --arch 9.0
grep -q 'error: --arch takes compute capabilities without the dot' "$root/out" || fail "$(cat "$root/out")"

gpu 1 --only step,nonsense
grep -q "no 'nonsense', but: build build-tests tests tests-bad " "$root/out" || fail "$(cat "$root/out")"
gpu 0 --help
grep -q '^  *--only PART' "$root/out" || fail "--help says: $(cat "$root/out")"
