// Means of ranks, and what right and wrong ways to combine them give: for gradients and losses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/labs/02_gradient_allreduce/verdict_ranks.h"

namespace lab02 {

/// Every rank's mean over its own targets.
struct RankMeans {
  std::vector<Numbers> values;  // per rank, equally many
  Numbers targets;              // per rank

  size_t ranks() const { return values.size(); }
  double all_targets() const;

  /// Sum over the ranks of factor(rank) * values[rank].
  Numbers combine(const std::function<double(size_t)>& factor) const;
  /// The mean over the targets of all ranks; 0 if there are none.
  Numbers mean() const;
  /// Sum of the magnitudes of the mean's terms, per element.
  Numbers magnitude() const;

  /// What rank `self` should have, with the mistakes that people make. `what`: "the gradients".
  lab::grading::Expected expected(size_t self, const std::string& what) const;
};

}  // namespace lab02
