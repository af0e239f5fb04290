#!/usr/bin/env bash
# Lab 02's step against lab 08's, on two hosts whose link is limited: network namespaces on this machine, joined
# by a bridge, with tc's token bucket on both ends. The two programs run in turns, RUNS times each. Prints, for
# each, the fastest and the median time per step, and the time of a step of one host alone; last, how far
# lab 08's step is from the longer of its two parts.
#
# Usage: slow_link.sh FOLDER_OF_PROGRAMS [RATE [RUNS [OPTION...]]]     (RATE as for tc: 1gbit)
set -euo pipefail
# shellcheck source=tests/bench/limited_hosts.sh
source "$(dirname "$(readlink -f -- "$0")")/limited_hosts.sh"
in_own_namespaces "$@"

programs=$(readlink -f -- "$1")
rate=${2:-1gbit}
runs=${3:-3}
shift $(($# < 3 ? $# : 3))
steps=8
cd "$LIMITED_HOSTS_FOLDER"
make_hosts 2 "$rate" 256kb

options=(--threads 1 --story-tokens 0 --validate-every 0 --validation-batches 1 --checkpoint-every 0
  --log-every 1 --steps "$steps" --cache "$LIMITED_HOSTS_FOLDER/cache" "$@")

# times OUT: seconds of each step but the first.
times() {
  python3 - "$1/metrics.jsonl" <<'PYTHON'
import json, sys
at = [row["seconds"] for row in map(json.loads, open(sys.argv[1])) if "loss" in row]
print(*(round(later - earlier, 4) for earlier, later in zip(at, at[1:])))
PYTHON
}

# pair PROGRAM OUT: one run on both hosts.
pair() {
  local k launchers=()
  for k in 0 1; do
    ip netns exec "host$k" timeout 120 "$programs/$1" "${options[@]}" --out "$2" --ranks 2 \
      --nnodes 2 --node-rank "$k" --master-addr 10.78.0.1 >"$2.$k.log" 2>&1 &
    launchers+=($!)
  done
  for k in 0 1; do
    wait "${launchers[k]}" || { tail -n 20 "$2".*.log; exit 1; }
  done
  times "$2"
}

for ((run = 1; run <= runs; ++run)); do
  for program in lab02_solution lab08_solution; do
    echo "$program $(pair "$program" "$program.$run")"
  done
  ip netns exec host0 timeout 120 "$programs/lab02_solution" "${options[@]}" --ranks 1 --out "alone.$run" \
    >alone.log 2>&1
  echo "one_rank $(times "alone.$run")"
done | tee all.txt | sed 's/^/  /'
python3 - all.txt <<'PYTHON'
import statistics, sys
steps = {}
for line in open(sys.argv[1]):
    name, *seconds = line.split()
    steps.setdefault(name, []).extend(float(s) for s in seconds)
median = {name: 1e3 * statistics.median(seconds) for name, seconds in steps.items()}
for name, seconds in steps.items():
    print(f"{name:16} fastest {1e3 * min(seconds):6.0f} ms  median {median[name]:6.0f} ms")
compute = median["one_rank"]
communication = median["lab02_solution"] - compute
print(f"lab08's step over the longer of compute ({compute:.0f} ms) and communication ({communication:.0f} ms): "
      f"{median['lab08_solution'] / max(compute, communication):.2f}")
PYTHON
