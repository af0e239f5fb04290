#!/usr/bin/env bash
# The program of lab 06 on several hosts. They are network namespaces on one machine, joined by a bridge as
# by a switch; each has its own address, host name and process numbers. They share all files but
# those in the folder `unshared`.
#
# Two and three hosts train to the same bits as one; a cable that is pulled, a rank that is killed, hosts
# that disagree or never come end every rank on every host, and each host says why; a slow and lossy cable
# changes no bit.
#
# Usage: hosts_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # where `ip` and `tc` may be

skip() {
  echo "skipped: $*"
  exit 77
}

# All of it happens in separate namespaces, which vanish with the first process in them.
if [[ -z ${HOSTS_TEST_FOLDER:-} ]]; then
  for tool in ip nsenter unshare; do
    type "$tool" >/dev/null 2>&1 || skip "no command '$tool' (Debian: iproute2, util-linux)"
  done
  folder=$(mktemp -d -t hosts-test.XXXXXX)
  trap 'rm -rf "$folder"' EXIT
  for rights in "" "--user --map-root-user"; do
    # shellcheck disable=SC2206
    inside=(unshare $rights --net --mount --pid --uts --fork --kill-child --mount-proc)
    "${inside[@]}" ip link add switch type bridge 2>/dev/null || continue
    code=0
    HOSTS_TEST_FOLDER=$folder "${inside[@]}" bash "$0" "$@" || code=$?
    exit "$code"
  done
  skip "no right to make network namespaces here, or no bridge in the kernel"
fi

# shellcheck source=tests/programs/helpers.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../programs/helpers.sh"
here=$(readlink -f -- "$(dirname -- "${BASH_SOURCE[0]}")")
programs=$(readlink -f -- "$1")
lab06=$programs/lab06_solution
folder=$HOSTS_TEST_FOLDER
cd "$folder"

mkdir unshared
hosts=3
master=10.77.0.1
mount -t tmpfs tmpfs /run # `ip netns` writes there
ip link set lo up
ip link add switch type bridge
ip link set switch up
for ((k = 0; k < hosts; ++k)); do
  ip netns add "host$k"
  ip link add "port$k" type veth peer name eth0 netns "host$k" || skip "the kernel has no veth"
  ip link set "port$k" master switch up
  ip -n "host$k" link set lo up
  ip -n "host$k" address add "10.77.0.$((k + 1))/24" dev eth0
  ip -n "host$k" link set eth0 up
done

# on K COMMAND...: runs it on host K. Its exit code; 99 if it leaves a process behind.
on() {
  local host=host$1
  shift
  # shellcheck disable=SC2016
  exec timeout --kill-after 1 60 nsenter --net="/run/netns/$host" \
    unshare --uts --pid --fork --kill-child --mount-proc bash -c '
      hostname "$0"
      [[ $0 == host0 ]] || mount -t tmpfs tmpfs unshared
      code=0
      "$@" || code=$?
      for process in /proc/[0-9]*; do
        [[ $process == /proc/$$ ]] && continue
        echo "left running: $(tr "\0" " " <"$process/cmdline")"
        code=99
      done
      exit "$code"' "$host" "$@"
}

options=(--dim 48 --heads 4 --context 64 --story-tokens 0 --validate-every 0 --threads 1
  --validation-batches 2 --checkpoint-every 0 --decay constant --warmup 0 --log-every 1
  --cache cache)

launchers=()
# launch N K OUT OPTION...: starts the launcher of host K of N; its output goes to OUT.K.log.
launch() {
  local count=$1 k=$2 out=$3
  shift 3
  on "$k" "$lab06" "${options[@]}" --out "$out" --nnodes "$count" --node-rank "$k" \
    --master-addr "$master" "$@" >"$out.$k.log" 2>&1 &
  launchers+=($!)
}

# launch_all N OUT OPTION...: those of hosts 0 to N - 1.
launch_all() {
  local count=$1 out=$2 k
  shift 2
  for ((k = 0; k < count; ++k)); do launch "$count" "$k" "$out" "$@"; done
}

logs() { tail -n 40 "$1".*.log; }

codes=()
# Waits for all launchers; their exit codes in the order in which they were started.
wait_for_launchers() {
  local launcher code
  codes=()
  for launcher in "${launchers[@]}"; do
    code=0
    wait "$launcher" || code=$?
    codes+=("$code")
  done
  launchers=()
}

succeed() {
  wait_for_launchers
  [[ ${codes[*]} =~ ^(0 ?)+$ ]] || fail "$1: exit codes ${codes[*]}"$'\n'"$(logs "$1")"
}

# fails OUT SECONDS: every host fails without help, in time, and leaves nothing.
fails() {
  local begin=$SECONDS code
  wait_for_launchers
  ((SECONDS - begin <= $2)) || fail "$1: it took $((SECONDS - begin)) s to end"$'\n'"$(logs "$1")"
  for code in "${codes[@]}"; do
    ((code != 0 && code != 99 && code < 124)) || [[ $code == 137 ]] ||
      fail "$1: exit codes ${codes[*]}"$'\n'"$(logs "$1")"
  done
}

# says OUT K PATTERN: host K has said so.
says() {
  grep -Eq -- "$3" "$1.$2.log" || fail "$1: host $2 does not say '$3'"$'\n'"$(logs "$1")"
}

# wait_for_steps OUT: until the run has done its first steps.
wait_for_steps() {
  local end=$((SECONDS + 30)) lines=0
  until ((lines >= 3)); do
    ((SECONDS < end)) || fail "$1 does not come to train"$'\n'"$(logs "$1")"
    sleep 0.05
    [[ ! -e $1/metrics.jsonl ]] || lines=$(wc -l <"$1/metrics.jsonl")
  done
}

# received K: bytes that host K has received over its cable.
received() { ip -n "host$1" -s -j link show eth0 | grep -o '"rx":{"bytes":[0-9]*' | grep -o '[0-9]*$'; }

# Two and three hosts compute what one host computes.
"$lab06" "${options[@]}" --dp 2 --pp 2 --steps 5 --out one_2x2 >one_2x2.log 2>&1 || fail "$(cat one_2x2.log)"
"$lab06" "${options[@]}" --dp 2 --pp 3 --steps 5 --out one_2x3 >one_2x3.log 2>&1 || fail "$(cat one_2x3.log)"
# What host 1 cannot write, it sends.
launch_all 2 unshared/two --dp 2 --pp 2 --steps 5
succeed unshared/two
same one_2x2 unshared/two checkpoint-000005
launch_all 3 three --steps 5
succeed three
same one_2x3 three checkpoint-000005
# Every step, the weights of a stage cross the cable.
for ((k = 0; k < hosts; ++k)); do
  (($(received "$k") > 1000000)) || fail "host $k has received but $(received "$k") bytes"
done

# A cable is pulled: at host 1's end, and at the switch's end of host 0, where rank 0 is.
launch_all 2 far --dp 2 --pp 2 --steps 100000
wait_for_steps far
ip -n host1 link set eth0 down
fails far 20
says far 0 'error: rank [23] has not been heard from for [0-9]+ s while'
says far 0 'rank 1 ends: rank [23] has not been heard from'
says far 1 'error: rank 0 is gone .* while rank 2'
says far 1 'error: the job cannot go on, for the reason that ranks 2 and 3 gave above'
ip -n host1 link set eth0 up

launch_all 3 near --steps 100000
wait_for_steps near
ip link set port0 down
fails near 20
says near 0 'error: rank [2-5] has not been heard from for [0-9]+ s while'
for k in 1 2; do says near "$k" 'error: rank 0 is gone .* while rank'; done
ip link set port0 up

# A rank is killed: its host knows at once, and tells.
launch_all 2 killed --dp 2 --pp 2 --steps 100000
wait_for_steps killed
victim=$(grep -lzx RANK=3 /proc/[0-9]*/environ 2>/dev/null | grep -o '[0-9]*')
kill -9 "$victim"
fails killed 5
says killed 0 'error: rank 3 was killed \(signal 9: SIGKILL\) while rank'
says killed 1 'rank 2 ends: rank 3 was killed'
says killed 1 '^error: rank 3 was killed \(signal 9: SIGKILL\)'

# A host is gone, with all its processes at once: the ends of its connections are not taken for the cause.
launch_all 2 gone --dp 2 --pp 2 --steps 100000
wait_for_steps gone
kill -9 "$(pgrep -P "$(pgrep -P "${launchers[1]}")")" # the first of host 1's processes
fails gone 20
says gone 0 'error: rank [23] has not been heard from for [0-9]+ s while'
says gone 0 'rank 1 ends: rank [23] has not been heard from'

# Hosts that disagree.
head -c 100000 "$(dirname "$here")/../data/stories.txt" >other.txt
disagree() {
  local what=$1 out=$2 k
  shift 2
  launch 2 0 "$out" --steps 5 --pp 2 --dp 2
  launch 2 1 "$out" --steps 5 --pp 2 "$@"
  fails "$out" 10
  for k in 0 1; do says "$out" "$k" "$what"; done
}
disagree 'the ranks disagree about the option seed: rank 0 has 1, rank 2 has 7' seed --dp 2 --seed 7
disagree 'the ranks disagree about the corpus' corpus --dp 2 --data other.txt
disagree 'started with world size 6, but rank 0 with 4' size --dp 3
[[ ! -e seed ]] || fail "a refused run has left its folder"

refused 'max-restarts works on one host' "$lab06" "${options[@]}" --out x --max-restarts 1 \
  --nnodes 2 --node-rank 0 --master-addr "$master"
refused '6 ranks on --nnodes 4' "$lab06" "${options[@]}" --out x --nnodes 4 --node-rank 0 \
  --master-addr "$master"

# A host that never comes: host 1 for host 0, and, at another port, host 0 for host 1.
launch 2 0 alone --dp 2 --pp 2 --steps 5 --timeout 4
launch 2 1 orphan --dp 2 --pp 2 --steps 5 --timeout 4 --master-port 29501
fails alone 10
says alone 0 'rank 0 waits for ranks 2 and 3 at 10.77.0.1:29500 \(4 s at most\)'
says alone 0 'error: ranks 2 and 3 never arrived at 10.77.0.1:29500 \(waited 4 s\): were they started?'
says orphan 1 'rank 2 waits for rank 0 at 10.77.0.1:29501 \(4 s at most\)'
says orphan 1 'error: no store at 10.77.0.1:29501 .*is rank 0 running there'

# A slow and lossy cable: 20 ms, one frame in a hundred.
if tc -n host1 qdisc add dev eth0 root netem delay 20ms loss 1% 2>/dev/null; then
  cable=netem
elif type python3 >/dev/null 2>&1; then
  cable=slow_cable.py
  ip link set port1 nomaster
  ip link add near type veth peer name far
  ip link set near master switch up
  ip link set far up
  coproc python3 "$here/slow_cable.py" port1 far 20 0.01
  # shellcheck disable=SC2154
  read -r -t 20 _ <&"${COPROC[0]}" || fail "slow_cable.py does not start"
else
  cable=none
fi
if [[ $cable != none ]]; then
  launch_all 2 slow --dp 2 --pp 2 --steps 5
  succeed slow
  same one_2x2 slow checkpoint-000005
  # A step sums the gradients over both hosts: there and back again, 20 ms at least each.
  tail -n 1 slow/metrics.jsonl | grep -o '"tokens_per_second":[0-9.]*' | cut -d: -f2 |
    awk '{ if (NF != 1 || 6 * 64 / $1 < 0.04) exit 1 }' || fail "the slow cable is not slow"
fi
echo "several hosts train as one does, and end together (slow cable: $cable)"
