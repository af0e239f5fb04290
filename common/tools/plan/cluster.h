// Cluster: the devices of a job and the links between them, as a cost model sees them.
#pragma once

#include <string>

namespace lab {

/// What one rank computes with.
struct DeviceSpec {
  std::string name;
  double flops = 0;             // floating-point operations per second that training achieves
  double memory = 0;            // bytes
  double memory_bandwidth = 0;  // bytes per second
};

/// A link: a message of B bytes takes latency + B / bandwidth.
struct Link {
  double bandwidth = 0;  // bytes per second of one rank while all others send, too
  double latency = 0;    // seconds
};

double transfer_seconds(const Link& link, double bytes);

/// The time of a ring all-reduce among `ranks`: 2(n-1) messages one after the other, of B/n bytes
/// each. The slowest link of the ring decides. Patarasuk and Yuan, "Bandwidth optimal all-reduce
/// algorithms" (2009).
double all_reduce_seconds(const Link& link, double bytes, int ranks);

/// `devices` ranks; `per_host` adjacent ones are on the same host.
///
/// `cores` > 0: one machine on which all ranks share that many cores, its memory and its memory
/// bandwidth. `device` then describes a core (flops) and the machine (memory, memory_bandwidth). A
/// rank has floor(cores / ranks) threads, at least one, as from the launcher.
struct Cluster {
  DeviceSpec device;
  int devices = 1;
  int per_host = 1;
  Link inside;   // between ranks of one host
  Link between;  // between hosts
  int cores = 0;

  /// Throws Error naming the first impossible figure.
  void validate() const;

  const Link& link(int rank, int other) const {
    return rank / per_host == other / per_host ? inside : between;
  }
};

}  // namespace lab
