// What task 3 is tested with: a few steps of a tiny model on two or three ranks.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/grading/parcel.h"
#include "tests/labs/01_single_gpu/random_input.h"

namespace lab03 {

using Numbers = std::vector<double>;

struct Case {
  Numbers shares = {1.0 / 3, 1.0 / 3, 1.0 / 3};  // one per rank
  int steps = 1;
  int every = 1;
  std::string optimizer = "sgd";
  double learning_rate = 0.1;
  double max_norm = 0;
  int microbatches = 1;
  /// Tokens of the rows of each rank's first microbatch; the rest is padding.
  std::vector<int64_t> lengths = {8, 8, 8};

  size_t ranks() const { return shares.size(); }
  int rounds() const { return steps / every; }
};

/// Later microbatches have fewer targets: else a mean of their means would be the mean.
inline lab::TokenBatch tokens(const Case& c, int step, size_t rank, int microbatch) {
  const auto seed = static_cast<uint64_t>(100 * step + 10 * microbatch) + rank;
  const int64_t row = std::max<int64_t>(c.lengths[rank] - 3 * microbatch, 2);
  return lab01::random_tokens({row, row}, /*length=*/8, /*vocab=*/24, seed);
}

inline void add_settings(const Case& c, lab::grading::Parcel& parcel) {
  parcel.set("steps", c.steps);
  parcel.set("every", c.every);
  parcel.set_text("optimizer", c.optimizer);
  parcel.set("learning_rate", c.learning_rate);
  parcel.set("max_norm", c.max_norm);
  parcel.set("microbatches", c.microbatches);
}

inline void add_tokens(const Case& c, size_t rank, lab::grading::Parcel& parcel) {
  for (int step = 1; step <= c.steps; ++step)
    for (int m = 0; m < c.microbatches; ++m)
      parcel.set(fmt::format("tokens.{}.{}.{}", step, rank, m), tokens(c, step, rank, m));
}

/// One parcel per rank, with that rank's own tokens only.
inline std::vector<lab::grading::Parcel> rank_inputs(const Case& c) {
  std::vector<lab::grading::Parcel> inputs(c.ranks());
  for (size_t r = 0; r < c.ranks(); ++r) {
    add_settings(c, inputs[r]);
    add_tokens(c, r, inputs[r]);
    inputs[r].set("share", c.shares[r]);
  }
  return inputs;
}

/// A way to aggregate: the right one, or with one mistake.
struct Plan {
  Numbers averages;  // after which steps
  Numbers shares;
  bool average_first = false;
  double gradient_scale = 1;
  bool gradients = false;  // in the place of the weights, in every step
  bool own_means = false;  // of a rank's microbatches, in the place of the mean over its targets
};

/// The input of the scenario `replicas` (rank_replicas.h).
inline lab::grading::Parcel replicas_input(const Case& c, const Plan& plan) {
  lab::grading::Parcel input;
  add_settings(c, input);
  for (size_t r = 0; r < c.ranks(); ++r) add_tokens(c, r, input);
  input.set("averages", plan.averages);
  input.set("shares", plan.shares);
  input.set("average_first", plan.average_first ? 1 : 0);
  input.set("gradient_scale", plan.gradient_scale);
  input.set("gradients", plan.gradients ? 1 : 0);
  input.set("own_means", plan.own_means ? 1 : 0);
  return input;
}

}  // namespace lab03
