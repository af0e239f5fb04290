#include "common/tools/plan/cluster.h"

#include <cmath>

#include "common/error.h"

namespace lab {
namespace {

void require_positive(double value, const char* what) {
  require(std::isfinite(value) && value > 0, "{} is {}: give a number above 0", what, value);
}

}  // namespace

double transfer_seconds(const Link& link, double bytes) {
  return link.latency + bytes / link.bandwidth;
}

double all_reduce_seconds(const Link& link, double bytes, int ranks) {
  return 2 * (ranks - 1) * transfer_seconds(link, bytes / ranks);
}

void Cluster::validate() const {
  require(devices >= 1 && devices <= 1 << 20, "{} devices: give a number between 1 and {}", devices,
          1 << 20);
  require(per_host >= 1, "{} devices per host: give a number above 0", per_host);
  require_positive(device.flops, "the device's rate");
  require_positive(device.memory, "the device's memory");
  require_positive(device.memory_bandwidth, "the device's memory bandwidth");
  for (const Link& link : {inside, between}) {
    require_positive(link.bandwidth, "the bandwidth of a link");
    require(std::isfinite(link.latency) && link.latency >= 0,
            "the latency of a link is {}: give a number of at least 0", link.latency);
  }
  require(cores >= 0, "{} cores: give a number above 0", cores);
  require(cores == 0 || devices <= per_host,
          "{} ranks, {} per host, share {} cores: cores are shared on one machine only", devices,
          per_host, cores);
}

}  // namespace lab
