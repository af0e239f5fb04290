// The parts from which right and wrong steps are made: each microbatch's loss and gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/labs/05_microbatches/verdict_ranks.h"

namespace lab05 {

/// Rows of eight tokens; rows of unequally many targets; unequally many rows, which differ in
/// length from one microbatch to the next.
std::vector<lab::TokenBatch> full_microbatches(int count);
std::vector<lab::TokenBatch> unequal_microbatches(int count);
std::vector<lab::TokenBatch> shaped_microbatches(int count);

/// "microbatches", "microbatch0", ...
void set_microbatches(lab::grading::Parcel& parcel, const std::vector<lab::TokenBatch>& batches);

int64_t targets_of(const std::vector<lab::TokenBatch>& microbatches);

/// Computed by the oracle: the whole model in one process, at its initial weights.
struct Parts {
  /// `total`: the number of targets by which losses and gradients are divided.
  Parts(const std::vector<lab::TokenBatch>& microbatches, int64_t total);

  /// Of the first `microbatches` of them only.
  Parts first(size_t microbatches) const;

  using Factor = std::function<double(size_t k)>;
  /// Sum over the microbatches of factor(k) * gradients[k].
  Numbers combine(const Factor& factor) const;
  double combine_losses(const Factor& factor) const;
  Numbers sum() const {
    return combine([](size_t) { return 1.0; });
  }
  size_t count() const { return targets.size(); }
  /// "model.norm.weight, element 3".
  std::string name(size_t i) const;

  /// `values`, within 1e-6 of the sum of the absolute terms of each element, and of the largest
  /// gradient of the model: an element may be a difference of large numbers inside a microbatch,
  /// where the place of a factor moves the rounding.
  lab::grading::Expected expected(const std::string& what, const Numbers& values) const;
  /// A loss, within 1e-6.
  lab::grading::Expected expected_loss(const std::string& what, double value) const;

  std::vector<Numbers> gradients;  // by microbatch; of the whole model, without gaps
  Numbers losses;
  Numbers targets;
  double total = 0;
  Numbers weights;
  std::vector<std::string> names;  // of the tensors
  Numbers ends;                    // of each tensor, in elements
};

double norm(const Numbers& values);
/// Scaled down to `max_norm`; 0: as they are.
Numbers clipped(Numbers gradients, double max_norm);

}  // namespace lab05
