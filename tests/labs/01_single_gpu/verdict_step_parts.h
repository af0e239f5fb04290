// Task 3's cases, and the parts from which right and wrong steps are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/grading/verdict.h"

namespace lab01 {

using Numbers = std::vector<double>;

inline constexpr double kLearningRate = 0.05;

struct Case {
  std::vector<lab::TokenBatch> microbatches;
  double max_norm = 0;
  float leftover = 0;  // in every gradient before the first step
  std::string optimizer = "sgd";
  int steps = 1;
};

/// Rows of these lengths.
lab::TokenBatch tokens(const std::vector<int64_t>& lengths, uint64_t seed);
Case equal_microbatches();
Case unequal_microbatches();
lab::grading::Parcel input_of(const Case& c);

double norm(const Numbers& values);
/// Scales the gradients down to `max_norm` if they are longer; 0: never.
void clip(Numbers& gradients, double max_norm);

/// The parts from which right and wrong steps are made: each microbatch's loss and gradients,
/// summed over its targets, at the initial weights.
struct Parts {
  explicit Parts(const Case& c);

  size_t count() const { return targets.size(); }

  /// Sum over the microbatches of factor(k) * values[k].
  template <typename Factor>
  Numbers combine(const std::vector<Numbers>& values, const Factor& factor) const {
    Numbers sum(values[0].size(), 0.0);
    for (size_t k = 0; k < count(); ++k)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor(k) * values[k][i];
    return sum;
  }

  /// "model.norm.weight, element 3".
  std::string name(size_t i) const;

  Numbers losses;
  std::vector<Numbers> gradients;
  Numbers targets;
  double total = 0;
  Numbers weights;
  Numbers begins;
  std::vector<std::string> names;
};

/// A way to weigh the microbatches.
struct Weighing {
  std::function<double(size_t k)> factor;
  std::string message;
};

/// Those of common mistakes.
std::vector<Weighing> wrong_weighings(const Parts& p);

/// What wrong steps would hand to the optimizer. `unclipped`: the right gradients before clipping.
std::vector<lab::grading::Mistake> gradient_mistakes(const Parts& p, const Case& c,
                                                     const Numbers& unclipped);

}  // namespace lab01
