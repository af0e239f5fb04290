#!/usr/bin/env bash
# scripts/gpu.sh on a machine whose GPU, compiler and test runner are stand-ins: it goes on after a
# part that fails, records what happened, and leaves the record alone where there is no GPU.
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

mkdir -p "$root"/{scripts,docs,build/student}
cp "$source_root"/scripts/{gpu,setup}.sh "$root/scripts"
cp "$source_root/packages.txt" "$root"
touch "$root/build/student/build.ninja"
cat >"$root/build/student/CMakeCache.txt" <<EOF
CMAKE_HOME_DIRECTORY:INTERNAL=$root
CMAKE_GENERATOR:INTERNAL=Ninja
CMAKE_CUDA_COMPILER:FILEPATH=/nvcc
EOF
stub bin/cmake <<'EOF'
if [[ $1 == --version ]]; then echo "cmake version 3.25.1"; fi
EOF
stub bin/compute-sanitizer <<'EOF'
[[ $LAB_CUDA_CACHE == 0 ]] || exit 5
if [[ $2 == racecheck ]]; then echo "========= RACECHECK SUMMARY: 1 hazard displayed"; exit 9; fi
echo "========= ERROR SUMMARY: 0 errors"
EOF
stub bin/ctest <<'EOF'
while [[ $1 != --output-junit ]]; do shift; done
cat >"$2" <<'XML'
<testsuite name="x">
	<testcase name="gpu.good" classname="gpu.good" time="0.1" status="run">
	</testcase>
	<testcase name="gpu.bad" classname="gpu.bad" time="0.1" status="fail">
	</testcase>
	<testcase name="lab01cuda.later" classname="x" time="0" status="notrun">
	</testcase>
</testsuite>
XML
exit 8
EOF
stub bin/python3 <<<'exit 1'
stub build/student/bin/devices <<<'echo "Stand-in (GPU 0 of 1)"'
stub build/student/bin/bench_step <<'EOF'
if [[ "$*" == *large* ]]; then echo "error: no memory" >&2; exit 1; fi
echo '{"milliseconds_per_step":1.5,"tokens_per_second":512000.5,"gflops":20000.0,' \
  '"matmul_gflops":50000,"share_of_matmul":0.4,"waiting_share":8e-1,"gpu_mib":123.5}'
EOF
export PATH=$root/bin:$PATH PYTHON=python3

# No GPU: one line, and the old record stays.
stub bin/nvidia-smi <<<'exit 9'
echo old >"$root/docs/gpu-results.md"
if "$root/scripts/gpu.sh" >"$root/out" 2>&1; then fail "no GPU: ended with 0"; fi
(($(wc -l <"$root/out") == 1)) || fail "no GPU: $(cat "$root/out")"
grep -q 'error: there is no GPU here' "$root/out" || fail "no GPU: $(cat "$root/out")"
[[ $(cat "$root/docs/gpu-results.md") == old ]] || fail "no GPU: the record was overwritten"

# A GPU on which half of it fails.
stub bin/nvidia-smi <<'EOF'
if [[ $1 == --list-gpus ]]; then echo "GPU 0: x"; else echo "Stand-in, 1 MiB"; fi
EOF
if "$root/scripts/gpu.sh" --quick >"$root/out" 2>&1; then fail "failed parts: ended with 0"; fi
while read -r line; do
  grep -qF -- "$line" "$root/docs/gpu-results.md" ||
    fail "the record lacks '$line':"$'\n'"$(cat "$root/out" "$root/docs/gpu-results.md")"
done <<'EOF'
| command | `./workbook gpu --quick` |
| GPU | 1 x Stand-in, 1 MiB |
in time: tests racecheck-ops_cuda step-large-float32 step-large-tf32 step-large-bfloat16.
| gpu | 1 | 1 | 0 |
| lab01cuda | 0 | 0 | 1 |
- gpu.bad: failed
- lab01cuda.later: skipped
| memcheck | ops_cuda_test.cpp | passed | ERROR SUMMARY: 0 errors |
| racecheck | ops_cuda_test.cpp | failed (exit code 9) | RACECHECK SUMMARY: 1 hazard displayed |
| seed, 3 sequences | tf32 | 1.50 | 512000 | 20.0 of 50.0 | 40 % | 80 % | 124 |
| large, 4 sequences | bfloat16 | failed (exit code 1): error: no memory |
Left out: python3 has no PyTorch that sees the GPU
Left out: there is one GPU only.
EOF
