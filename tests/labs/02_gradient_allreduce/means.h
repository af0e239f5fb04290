// Means of ranks, and what right and wrong ways to combine them give: for gradients and losses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab02 {

using lab::grading::expect_on_every_rank;
using lab::grading::expect_same_bits;
using lab::grading::Numbers;

/// Every rank's mean over its own targets.
struct RankMeans {
  std::vector<Numbers> values;  // per rank, equally many
  Numbers targets;              // per rank

  size_t ranks() const { return values.size(); }
  double all_targets() const;
  double share(size_t rank) const;  // of all targets; 0 if there are none

  /// Sum over the ranks of factor(rank) * values[rank].
  Numbers combine(const std::function<double(size_t)>& factor) const;
  /// The mean over the targets of all ranks; 0 if there are none.
  Numbers mean() const;
  /// Sum of the magnitudes of the mean's terms, per element.
  Numbers magnitude() const;

  /// What rank `self` should have, with the mistakes that people make. `what`: "the gradients".
  lab::grading::Expected expected(size_t self, const std::string& what) const;
};

/// What a call may send: all_reduces, and nothing else.
struct Budget {
  uint64_t all_reduces = 2;
  uint64_t bytes = 0;        // handed to all_reduce by a rank
  std::string if_too_many;   // told when there are more all_reduces than that
  std::string if_too_large;  // told when there are more bytes
};

/// Ends the test as failed if rank `rank` sent more. To be called when the numbers are right.
void expect_all_reduces(const std::vector<lab::grading::Operation>& sent, size_t rank,
                        const Budget& budget);

}  // namespace lab02
