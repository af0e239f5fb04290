#include "labs/01cuda_kernels/training_functions.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/tensor/accelerator.h"
#include "common/tensor/device_tokens.h"
#include "labs/01cuda_kernels/kernels.h"

namespace lab01cuda {
namespace {

/// The target of each position of a batch: the next token, or padding where there is none.
std::vector<int32_t> next_tokens(const lab::TokenBatch& batch) {
  std::vector<int32_t> targets(batch.tokens.size(), lab::kPadding);
  for (size_t i = 0; i + 1 < targets.size(); ++i) {
    const bool last_of_row = static_cast<int64_t>(i + 1) % batch.length == 0;
    if (!last_of_row) targets[i] = batch.tokens[i + 1];
  }
  return targets;
}

double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets) {
  const int64_t positions = logits.row_count();
  const auto targets = static_cast<double>(std::max<int64_t>(total_targets, 1));
  lab::DeviceTokens next(lab::Device::kCuda);
  next.assign(next_tokens(batch));
  const lab::Tensor losses = lab::Tensor::empty({positions}, lab::Device::kCuda);
  launch_softmax_cross_entropy(logits.data(), next.tokens().data(),
                               static_cast<float>(1.0 / targets), losses.data(), positions,
                               logits.size(-1));
  // A few KiB come back and are added up in order: the same bits every time.
  const lab::Tensor read = losses.to(lab::Device::kCpu);
  return std::accumulate(read.values().begin(), read.values().end(), 0.0) / targets;
}

void adam_update(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 std::span<float> parameters, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment) {
  launch_adam(config, learning_rate, step, parameters.data(), gradients.data(), first_moment.data(),
              second_moment.data(), static_cast<int64_t>(parameters.size()));
}

}  // namespace

TrainingFunctions training_functions(lab::Device device) {
  if (device == lab::Device::kCpu) return {lab01::causal_lm_loss, lab01::adam_update};
  return {causal_lm_loss, adam_update};
}

}  // namespace lab01cuda
