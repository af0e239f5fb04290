// Inputs of steps, and the oracle's parts.
#include "tests/labs/06_hybrid_2x3/verdict_case.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "common/tensor/error.h"
#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab06 {

using lab::TokenBatch;
using lab::grading::Parcel;

namespace {

constexpr double kTolerance = 1e-6;
constexpr int64_t kLength = 8;  // T of all microbatches

double targets_in(const std::vector<TokenBatch>& batches) {
  double sum = 0;
  for (const TokenBatch& batch : batches) sum += static_cast<double>(batch.target_count());
  return sum;
}

/// Layers of each stage.
Numbers layers(int pp) {
  const auto end = [pp](int stage) {
    const int64_t layer = pipeline_tests::kLayers * stage / pp;
    return static_cast<double>(layer);
  };
  Numbers counts;
  for (int s = 0; s < pp; ++s) counts.push_back(end(s + 1) - end(s));
  return counts;
}

/// Tokens of the same shape, with another number of targets.
TokenBatch meaningless(const TokenBatch& batch, uint64_t seed) {
  const std::vector<int64_t> lengths(static_cast<size_t>(batch.batch), batch.length / 2);
  return lab01::random_tokens(lengths, batch.length, pipeline_tests::kVocab, seed);
}

void set_common(const StepCase& c, Parcel& parcel) {
  c.grid.set(parcel);
  parcel.set("microbatches", c.microbatches());
  parcel.set("total", c.total());
  parcel.set("max_norm", c.max_norm);
  parcel.set_text("optimizer", c.optimizer);
  parcel.set("steps", c.steps);
  parcel.set("learning_rate", c.learning_rate);
}

}  // namespace

std::vector<TokenBatch> StepCase::microbatches_of(int pipeline) const {
  std::vector<TokenBatch> batches;
  for (int k = 0; k < microbatches(); ++k) {
    const std::vector<int64_t> rows =
        unequal ? std::vector<int64_t>{kLength - (k + pipeline) % (3 + pipeline), 2 + (3 * k) % 5}
                : std::vector<int64_t>{kLength};
    batches.push_back(lab01::random_tokens(
        rows, kLength, pipeline_tests::kVocab,
        500 + 100 * static_cast<uint64_t>(pipeline) + static_cast<uint64_t>(k)));
  }
  return batches;
}

double StepCase::total() const {
  double sum = 0;
  for (int d = 0; d < grid.dp; ++d) sum += targets_in(microbatches_of(d));
  return sum;
}

double StepCase::message_bytes() const {
  return static_cast<double>((unequal ? 2 : 1) * kLength * pipeline_tests::kDim) * sizeof(float);
}

std::vector<Parcel> StepCase::inputs() const {
  std::vector<Parcel> all(grid.ranks());
  for (size_t r = 0; r < all.size(); ++r) {
    set_common(*this, all[r]);
    all[r].set("wave", wave);
    all[r].set_text("schedule", schedule);
    all[r].set("leftover", leftover);
    const bool reads = grid.stage(r) == 0 || grid.is_last(r);
    const std::vector<TokenBatch> batches = microbatches_of(grid.pipeline(r));
    for (size_t k = 0; k < batches.size(); ++k)
      all[r].set(fmt::format("microbatch.{}", k),
                 reads ? batches[k] : meaningless(batches[k], 1000 * r + k));
  }
  return all;
}

Parcel StepCase::as_one_process() const {
  Parcel input;
  set_common(*this, input);
  for (int d = 0; d < grid.dp; ++d) {
    const std::vector<TokenBatch> batches = microbatches_of(d);
    for (size_t k = 0; k < batches.size(); ++k)
      input.set(fmt::format("microbatch.{}.{}", d, k), batches[k]);
  }
  return input;
}

Parcel oracle(const std::string& scenario, const StepCase& c) {
  return lab::grading::reference_group(scenario, {c.as_one_process()}, late(1))[0];
}

Parts::Parts(const StepCase& c) : Parts(c, oracle("parts", c)) {}

Parts::Parts(const StepCase& c, const Parcel& parcel)
    : total(c.total()),
      sum(lab::grading::to_doubles(parcel.tensor("sum"))),
      sums_of_losses(parcel.numbers("sums_of_losses")),
      weights(lab::grading::to_doubles(parcel.tensor("weights"))),
      layout(parcel, layers(c.grid.pp)) {
  for (int d = 0; d < c.grid.dp; ++d) {
    losses.push_back(parcel.numbers(fmt::format("losses.{}", d)));
    gradients.emplace_back();
    targets.emplace_back();
    const std::vector<TokenBatch> batches = c.microbatches_of(d);
    for (size_t k = 0; k < batches.size(); ++k) {
      gradients.back().push_back(
          lab::grading::to_doubles(parcel.tensor(fmt::format("gradients.{}.{}", d, k))));
      targets.back().push_back(static_cast<double>(batches[k].target_count()));
    }
  }
  lab::require(!c.unequal || c.grid.dp == 1 || targets_of(0) != targets_of(1),
               "the pipelines of this case have equally many targets");
}

double Parts::targets_of(size_t pipeline) const {
  return std::accumulate(targets[pipeline].begin(), targets[pipeline].end(), 0.0);
}

Numbers Parts::combine(const Factor& factor) const {
  Numbers result(weights.size(), 0.0);
  for (size_t d = 0; d < gradients.size(); ++d)
    for (size_t k = 0; k < gradients[d].size(); ++k)
      if (const double f = factor(d, k); f != 0)
        for (size_t i = 0; i < result.size(); ++i) result[i] += f * gradients[d][k][i];
  return result;
}

double Parts::combine_losses(const Factor& factor) const {
  double result = 0;
  for (size_t d = 0; d < losses.size(); ++d)
    for (size_t k = 0; k < losses[d].size(); ++k) result += factor(d, k) * losses[d][k];
  return result;
}

Numbers Parts::tolerance() const {
  Numbers all(weights.size(), lab::grading::largest_magnitude(sum));
  for (const std::vector<Numbers>& pipeline : gradients)
    for (const Numbers& own : pipeline)
      for (size_t i = 0; i < own.size(); ++i) all[i] += std::abs(own[i]);
  for (double& t : all) t *= kTolerance;
  return all;
}

}  // namespace lab06
