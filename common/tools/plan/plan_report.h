// Estimates as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "common/tools/plan/estimate.h"

namespace lab {

/// Two lines: what is trained, and on what.
std::string plan_header(const Training& training, const Cluster& cluster);

/// A line per estimate, at most `rows` (0: all), a line that counts the rest, and the legend.
std::string plan_table(const std::vector<Estimate>& ranked, int rows);

/// Everything: "training", "cluster", "estimates" (in their order; bytes, seconds, fractions),
/// "best" (the first estimate's dp, pp, m, or null if it does not fit) and "verdict".
std::string plan_json(const Training& training, const Cluster& cluster,
                      const std::vector<Estimate>& ranked);

}  // namespace lab
