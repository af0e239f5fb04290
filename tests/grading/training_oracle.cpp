// One process that computes what every microbatch contributes.
#include "tests/grading/training_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/model/config.h"
#include "common/tensor/parallel.h"
#include "tests/grading/reference.h"
#include "tests/grading/training_rank.h"

namespace lab::grading {
namespace {

/// Every number off by about one rounding of a float, up or down in turn.
Numbers nudged(Numbers numbers) {
  constexpr double kRounding = 0x1p-24;
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] *= 1 + (i % 2 == 0 ? 1 : -1) * kRounding;
  return numbers;
}

}  // namespace

Numbers StepParts::combine(const Weight& weight) const {
  Numbers sum(weights, 0.0);
  for (const MicrobatchPart& microbatch : microbatches)
    if (const double factor = weight(microbatch); factor != 0)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * microbatch.gradient[i];
  return sum;
}

double StepParts::combine_losses(const Weight& weight) const {
  double sum = 0;
  for (const MicrobatchPart& microbatch : microbatches) sum += weight(microbatch) * microbatch.loss;
  return sum;
}

Numbers StepParts::mean() const {
  return combine([&](const MicrobatchPart&) { return targets > 0 ? 1 / targets : 0.0; });
}

Numbers StepParts::magnitude() const {
  Numbers sum(weights, 0.0);
  if (targets > 0)
    for (const MicrobatchPart& microbatch : microbatches)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += std::abs(microbatch.gradient[i]) / targets;
  return sum;
}

double StepParts::targets_of(size_t replica) const {
  double sum = 0;
  for (const MicrobatchPart& microbatch : microbatches)
    sum += microbatch.replica == replica ? microbatch.targets : 0;
  return sum;
}

double StepParts::count_of(size_t replica) const {
  double count = 0;
  for (const MicrobatchPart& microbatch : microbatches) count += microbatch.replica == replica;
  return count;
}

TrainingOracle::TrainingOracle(const TrainingCase& training)
    : case_(training),
      model_(training.model, StageSpan::whole(training.model), Device::kCpu, training.seed),
      initial_weights_(to_doubles(packed(model_, model_.parameters()))),
      stage_begins_{0} {
  for (int stage = 0; stage < training.stages(); ++stage)
    stage_begins_.push_back(stage_begins_.back() + static_cast<size_t>(parameter_count(
                                                       training.model, training.span(stage))));
}

void TrainingOracle::load(const Numbers& weights) {
  const double* next = weights.data();
  for (const Parameter& parameter : model_.named_parameters())
    for (float& value : parameter.value.values()) value = static_cast<float>(*next++);
}

double TrainingOracle::compute(const TokenBatch& batch, double factor) {
  model_.zero_gradients();
  const Tensor logits = model_.forward(batch);
  const double loss = scaled_reference_loss(logits, batch, 1, factor * case_.loss_factor);
  model_.backward(logits);
  return loss;
}

StepParts TrainingOracle::parts(size_t step, const std::vector<Numbers>& weights) {
  StepParts parts{.weights = static_cast<size_t>(model_.parameter_count())};
  for (size_t replica = 0; replica < case_.steps[step].size(); ++replica) {
    load(weights[replica]);
    for (const TokenBatch& batch : case_.steps[step][replica]) {
      const Tensor early = model_.gradients();
      const double loss = compute(batch, 1);
      Numbers without_head;  // a tied head's share is added when gradients are asked for
      if (case_.model.tied_head) without_head = to_doubles(packed(model_, early.clone()));
      parts.microbatches.push_back(
          {.replica = replica,
           .number = static_cast<size_t>(parts.count_of(replica)),
           .targets = static_cast<double>(batch.target_count()),
           .sequences = static_cast<double>(batch.batch),
           .positions = static_cast<double>(batch.batch * (batch.length - 1)),
           .loss = loss,
           .gradient = to_doubles(packed(model_, model_.gradients())),
           .early = std::move(without_head)});
      parts.targets += parts.microbatches.back().targets;
    }
  }
  return parts;
}

double TrainingOracle::rounding(size_t step, const std::vector<Numbers>& weights,
                                const StepParts& parts) {
  double sum = 0;
  for (const MicrobatchPart& part : parts.microbatches) {
    const TokenBatch& batch = case_.steps[step][part.replica][part.number];
    load(nudged(weights[part.replica]));
    compute(batch, 1);
    const Numbers nearby = to_doubles(packed(model_, model_.gradients()));
    load(weights[part.replica]);
    compute(batch, 1.0 / 3);
    const Numbers third = to_doubles(packed(model_, model_.gradients()));
    double most = 0;
    for (size_t i = 0; i < third.size(); ++i)
      most = std::max({most, std::abs(3 * third[i] - part.gradient[i]),
                       std::abs(nearby[i] - part.gradient[i])});
    sum += most;
  }
  return parts.targets > 0 ? sum / parts.targets : 0;
}

TrainingOracle::Exact TrainingOracle::one_process(size_t step, const Numbers& weights) {
  load(weights);
  int64_t targets = 0;
  for (const TokenBatch& batch : case_.steps[step][0]) targets += batch.target_count();
  model_.zero_gradients();
  Exact exact;
  for (const TokenBatch& batch : case_.steps[step][0]) {
    const Tensor logits = model_.forward(batch);
    exact.loss += scaled_reference_loss(logits, batch, targets, case_.loss_factor);
    model_.backward(logits);
  }
  exact.gradient = to_doubles(packed(model_, model_.gradients()));
  return exact;
}

std::pair<size_t, size_t> TrainingOracle::range(int stage) const {
  const auto s = static_cast<size_t>(stage);
  return {stage_begins_[s], stage_begins_[s + 1]};
}

Numbers TrainingOracle::of_stage(const Numbers& whole, int stage) const {
  const auto [begin, end] = range(stage);
  return {whole.begin() + static_cast<std::ptrdiff_t>(begin),
          whole.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::string TrainingOracle::name(size_t element) const {
  for (const Parameter& parameter : model_.named_parameters()) {
    const auto size = static_cast<size_t>(parameter.value.numel());
    if (element < size) return fmt::format("{}, element {}", parameter.name, element);
    element -= size;
  }
  return "";
}

double norm(const Numbers& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

Numbers clipped(Numbers values, double max_norm) {
  const double length = norm(values);
  if (max_norm > 0 && length > max_norm)
    for (double& value : values) value *= max_norm / length;
  return values;
}

double first_gradient_norm(const TrainingCase& training) {
  TrainingOracle oracle(training);
  const std::vector<Numbers> weights(static_cast<size_t>(training.replicas),
                                     oracle.initial_weights());
  // A step may be without targets: the first one that has some.
  for (size_t step = 0; step < training.steps.size(); ++step)
    if (const double length = norm(oracle.parts(step, weights).mean()); length > 0) return length;
  return 1;
}

}  // namespace lab::grading
