#include "common/optim/optimizer.h"

#include "common/error.h"
#include "common/ops/ops.h"
#include "common/tensor/memory_account.h"
#include "common/tensor/parallel.h"

namespace lab {
namespace {

constexpr int64_t kBlock = 1 << 15;  // elements; four arrays of this size fit into a core's cache

void check_sizes(const Tensor& parameters, const Tensor& gradients) {
  require(parameters.numel() == gradients.numel(), "optimizer: {} parameters but {} gradients",
          parameters.numel(), gradients.numel());
}

std::span<float> block(const Tensor& tensor, int64_t first, int64_t last) {
  return {tensor.data() + first, static_cast<size_t>(last - first)};
}

}  // namespace

void Sgd::step(const Tensor& parameters, const Tensor& gradients, float learning_rate) {
  check_sizes(parameters, gradients);
  ++steps_;
  add_scaled(gradients, -learning_rate, parameters);
}

Adam::Adam(int64_t size, const AdamConfig& config, AdamUpdate update, float weight_decay,
           Device device)
    : config_(config), update_(update), weight_decay_(weight_decay) {
  const MemoryOf kind(MemoryKind::kOptimizer);
  first_moment_ = Tensor::zeros({size}, device);
  second_moment_ = Tensor::zeros({size}, device);
}

void Adam::step(const Tensor& parameters, const Tensor& gradients, float learning_rate) {
  check_sizes(parameters, gradients);
  require(parameters.numel() == first_moment_.numel(), "Adam: made for {} parameters, given {}",
          first_moment_.numel(), parameters.numel());
  ++steps_;
  const float keep = 1.0F - learning_rate * weight_decay_;
  if (parameters.device() == Device::kCuda) {  // one call: the GPU divides the work itself
    const int64_t count = parameters.numel();
    if (weight_decay_ != 0.0F) scale(parameters, keep);
    update_(config_, learning_rate, steps_, block(parameters, 0, count), block(gradients, 0, count),
            block(first_moment_, 0, count), block(second_moment_, 0, count));
    return;
  }
  parallel_blocks(parameters.numel(), kBlock, [&](int64_t first, int64_t last) {
    const std::span<float> weights = block(parameters, first, last);
    if (weight_decay_ != 0.0F)
      for (float& weight : weights) weight *= keep;
    update_(config_, learning_rate, steps_, weights, block(gradients, first, last),
            block(first_moment_, first, last), block(second_moment_, first, last));
  });
}

std::vector<Optimizer::State> Adam::state() const {
  return {{"exp_avg", first_moment_}, {"exp_avg_sq", second_moment_}};
}

}  // namespace lab
