// All ways to lay a training out on a cluster, from best to worst.
#pragma once

#include <string>
#include <vector>

#include "common/tools/plan/estimate.h"

namespace lab {

struct SearchOptions {
  int64_t microbatch = 0;  // sequences; 0: every number that divides
  bool fewer = false;      // also layouts on fewer devices, a divisor of their number
  int tp = 1;              // ranks that divide every layer
  int shard = 0;           // what replicas hold in shards: then only pp = 1
};

/// Every dp x pp x m that estimate() accepts with this tp and that uses all devices (or, with
/// `fewer`, a divisor of their number). The batch is fixed: dp * m divides it.
std::vector<Layout> layouts(const Training& training, const Cluster& cluster,
                            const SearchOptions& options);

/// Estimates of all layouts: first those that fit, by tokens/s, then by memory; after them the
/// others, by missing memory. Throws Error if there is no layout, saying which condition rules them
/// out.
std::vector<Estimate> search(const Training& training, const Cluster& cluster,
                             const SearchOptions& options);

/// One line: which of `ranked` (as from `search`) is best, and why; or, if nothing fits, which
/// is closest and what would help.
std::string verdict(const std::vector<Estimate>& ranked);

}  // namespace lab
