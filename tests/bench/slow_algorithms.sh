#!/usr/bin/env bash
# Lab 07's all-reduces and Gloo's between hosts whose links are limited, one rank on each: the times per size, and from
# which size on the ring is faster than doubling, as alpha, beta and gamma predict it and as measured.
#
# Usage: slow_algorithms.sh FOLDER_OF_PROGRAMS [HOSTS [RATE [OPTION...]]]     (RATE as for tc: 300mbit)
set -euo pipefail
# shellcheck source=tests/bench/limited_hosts.sh
source "$(dirname "$(readlink -f -- "$0")")/limited_hosts.sh"
in_own_namespaces "$@"

programs=$(readlink -f -- "$1")
hosts=${2:-3}
rate=${3:-300mbit}
shift $(($# < 3 ? $# : 3))
cd "$LIMITED_HOSTS_FOLDER"
make_hosts "$hosts" "$rate" 3kb # two packets: a burst would let small messages pass at once

launchers=()
for ((k = 0; k < hosts; ++k)); do
  ip netns exec "host$k" timeout 300 "$programs/bench_algorithms" --smallest 64 --largest 65536 "$@" --ranks "$hosts" \
    --nnodes "$hosts" --node-rank "$k" --master-addr 10.78.0.1 >"$k.log" 2>&1 &
  launchers+=($!)
done
for launcher in "${launchers[@]}"; do
  wait "$launcher" || { tail -n 20 ./*.log; exit 1; }
done
sed 's/^\[0\] //' 0.log
