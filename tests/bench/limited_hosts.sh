# shellcheck shell=bash
# For benchmarks between hosts: network namespaces on this machine, host0, host1, ..., with addresses 10.78.0.1, ...,
# joined by a bridge, with tc's token bucket at each. To be sourced.
PATH=$PATH:/usr/sbin:/sbin # where `ip` and `tc` may be

# in_own_namespaces ARGUMENT...: runs the calling script again, in namespaces that end with it, and with a temporary
# folder, LIMITED_HOSTS_FOLDER. Returns only there.
in_own_namespaces() {
  if [[ -n ${LIMITED_HOSTS_FOLDER:-} ]]; then return; fi
  LIMITED_HOSTS_FOLDER=$(mktemp -d -t limited-hosts.XXXXXX)
  export LIMITED_HOSTS_FOLDER
  trap 'rm -rf "$LIMITED_HOSTS_FOLDER"' EXIT
  unshare --net --mount --pid --fork --kill-child --mount-proc bash "$0" "$@"
  exit
}

# make_hosts COUNT RATE BURST: RATE and BURST as for tc. What fits into the burst does not wait for the rate.
make_hosts() {
  local k
  mount -t tmpfs tmpfs /run # `ip netns` writes there
  ip link set lo up
  ip link add switch type bridge
  ip link set switch up
  for ((k = 0; k < $1; ++k)); do
    ip netns add "host$k"
    ip link add "port$k" type veth peer name eth0 netns "host$k"
    ip link set "port$k" master switch up
    ip -n "host$k" link set lo up
    ip -n "host$k" address add "10.78.0.$((k + 1))/24" dev eth0
    ip -n "host$k" link set eth0 up
    ip netns exec "host$k" tc qdisc add dev eth0 root tbf rate "$2" burst "$3" latency 100ms
  done
}
