// The parts of a training step, computed without any of the lab's functions.
#include "tests/labs/02_gradient_allreduce/verdict_step_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace lab02 {

using lab::grading::Parcel;

std::vector<Parcel> StepCase::inputs() const {
  std::vector<Parcel> all(ranks());
  for (size_t r = 0; r < ranks(); ++r) {
    all[r].set("microbatches", static_cast<double>(microbatches[r].size()));
    for (size_t k = 0; k < microbatches[r].size(); ++k)
      all[r].set("microbatch" + std::to_string(k), microbatches[r][k]);
    all[r].set("max_norm", max_norm);
    all[r].set("leftover", leftover);
    all[r].set_text("optimizer", optimizer);
    all[r].set("steps", steps);
    all[r].set("learning_rate", learning_rate);
  }
  return all;
}

StepParts::StepParts(const StepCase& c)
    : targets(c.ranks(), 0.0), sequences(c.ranks(), 0.0), counts(c.ranks(), 0.0) {
  Parcel input;
  for (size_t r = 0; r < c.ranks(); ++r)
    for (size_t k = 0; k < c.microbatches[r].size(); ++k) {
      const lab::TokenBatch& batch = c.microbatches[r][k];
      input.set("microbatch" + std::to_string(microbatches.size()), batch);
      microbatches.push_back({.rank = r,
                              .number = k,
                              .targets = static_cast<double>(batch.target_count()),
                              .sequences = static_cast<double>(batch.batch),
                              .loss = 0,
                              .gradients = {}});
      targets[r] += microbatches.back().targets;
      sequences[r] += microbatches.back().sequences;
      counts[r] += 1;
      total += microbatches.back().targets;
    }
  input.set("microbatches", static_cast<double>(microbatches.size()));
  const Parcel parcel = lab::grading::reference("microbatch_gradients", input);
  const Numbers losses = parcel.numbers("losses");
  for (size_t j = 0; j < microbatches.size(); ++j) {
    microbatches[j].loss = losses[j];
    microbatches[j].gradients =
        lab::grading::to_doubles(parcel.tensor("gradients" + std::to_string(j)));
  }
  weights = lab::grading::to_doubles(parcel.tensor("weights"));
  parameters = parcel.number("parameters");
  begins = parcel.numbers("begins");
  std::istringstream lines(parcel.text("names"));
  for (std::string line; std::getline(lines, line);) names.push_back(line);
}

Numbers StepParts::combine(const Factor& factor) const {
  Numbers sum(weights.size(), 0.0);
  for (const Microbatch& microbatch : microbatches)
    if (const double f = factor(microbatch); f != 0)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += f * microbatch.gradients[i];
  return sum;
}

double StepParts::combine_losses(const Factor& factor) const {
  double sum = 0;
  for (const Microbatch& microbatch : microbatches) sum += factor(microbatch) * microbatch.loss;
  return sum;
}

Numbers StepParts::magnitude() const {
  Numbers sum(weights.size(), 0.0);
  for (const Microbatch& microbatch : microbatches)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += std::abs(microbatch.gradients[i]) / total;
  return sum;
}

Numbers StepParts::of_rank(size_t rank) const {
  return combine([&](const Microbatch& b) {
    return b.rank == rank && targets[rank] > 0 ? 1 / targets[rank] : 0.0;
  });
}

std::string StepParts::name(size_t i) const {
  const auto next = std::upper_bound(begins.begin(), begins.end(), static_cast<double>(i));
  const auto parameter = static_cast<size_t>(next - begins.begin()) - 1;
  return fmt::format("{}, element {}", names[parameter],
                     i - static_cast<size_t>(begins[parameter]));
}

double norm(const Numbers& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

Numbers clipped(Numbers gradients, double max_norm) {
  const double factor = max_norm / norm(gradients);
  if (max_norm > 0 && factor < 1)
    for (double& g : gradients) g *= factor;
  return gradients;
}

}  // namespace lab02
