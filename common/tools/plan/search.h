// All ways to lay a training out on a cluster, from best to worst.
#pragma once

#include <string>
#include <vector>

#include "common/tools/plan/estimate.h"

namespace lab {

struct SearchOptions {
  int64_t microbatch = 0;  // sequences; 0: every number that divides
  bool fewer = false;      // also layouts that take a divisor of the devices only
};

/// Every dp x pp x m that estimate() accepts and that takes all devices (or, with `fewer`, a
/// divisor of their number). The batch stays the same: dp * m divides it.
std::vector<Layout> layouts(const Training& training, const Cluster& cluster,
                            const SearchOptions& options);

/// Estimates of all layouts: those that fit first, by tokens/s, then by memory; behind them the
/// others, by what is missing. Throws Error if there is no layout, saying which condition rules
/// them out.
std::vector<Estimate> search(const Training& training, const Cluster& cluster,
                             const SearchOptions& options);

/// One line: which of `ranked` (as from `search`) is best, and why; or, if nothing fits, which
/// is closest and what would help.
std::string verdict(const std::vector<Estimate>& ranked);

}  // namespace lab
