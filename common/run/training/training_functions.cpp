// Compiled for programs, not for the library: what it declares is in the labs that a program is
// linked with.
#include "common/run/training/training_functions.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "common/run/training/linked_labs.h"
#include "common/tensor/device_tokens.h"

namespace lab {
namespace {

/// The target of each position of a batch: the next token, or padding where there is none.
std::vector<int32_t> next_tokens(const TokenBatch& batch) {
  std::vector<int32_t> targets(batch.tokens.size(), kPadding);
  for (size_t i = 0; i + 1 < targets.size(); ++i) {
    const bool last_of_row = static_cast<int64_t>(i + 1) % batch.length == 0;
    if (!last_of_row) targets[i] = batch.tokens[i + 1];
  }
  return targets;
}

double causal_lm_loss(const Tensor& logits, const TokenBatch& batch, int64_t total_targets) {
  const int64_t positions = logits.row_count();
  const auto targets = static_cast<double>(std::max<int64_t>(total_targets, 1));
  DeviceTokens next(Device::kCuda);
  next.assign(next_tokens(batch));
  const Tensor losses = Tensor::empty({positions}, Device::kCuda);
  lab01cuda::launch_softmax_cross_entropy(logits.data(), next.tokens().data(),
                                          static_cast<float>(1.0 / targets), losses.data(),
                                          positions, logits.size(-1));
  // A few KiB come back and are added up in order: the same bits every time.
  const Tensor read = losses.to(Device::kCpu);
  return std::accumulate(read.values().begin(), read.values().end(), 0.0) / targets;
}

void adam_update(const AdamConfig& config, float learning_rate, int64_t step,
                 std::span<float> parameters, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment) {
  lab01cuda::launch_adam(config, learning_rate, step, parameters.data(), gradients.data(),
                         first_moment.data(), second_moment.data(),
                         static_cast<int64_t>(parameters.size()));
}

}  // namespace

TrainingFunctions training_functions(Device device) {
  if (device == Device::kCpu) return {lab01::causal_lm_loss, lab01::adam_update};
  return {causal_lm_loss, adam_update};
}

}  // namespace lab
