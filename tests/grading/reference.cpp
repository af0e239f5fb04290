// Plain loops in double.
#include "tests/grading/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/error.h"

namespace lab::grading {
namespace {

void adam(const AdamConfig& config, float learning_rate, int64_t step, std::span<float> parameters,
          std::span<const float> gradients, std::span<float> first_moment,
          std::span<float> second_moment) {
  const double beta1 = config.beta1;
  const double beta2 = config.beta2;
  const auto n = static_cast<double>(step);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double g = gradients[i];
    const double m = beta1 * first_moment[i] + (1 - beta1) * g;
    const double v = beta2 * second_moment[i] + (1 - beta2) * g * g;
    first_moment[i] = static_cast<float>(m);
    second_moment[i] = static_cast<float>(v);
    const double corrected = std::sqrt(v / (1 - std::pow(beta2, n))) + double{config.epsilon};
    parameters[i] -=
        static_cast<float>(double{learning_rate} * m / (1 - std::pow(beta1, n)) / corrected);
  }
}

}  // namespace

double reference_loss(const Tensor& logits, const TokenBatch& batch, int64_t total_targets) {
  const int64_t vocab = logits.size(-1);
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(total_targets, 1));
  double sum = 0;
  for (int64_t i = 0; i < batch.batch * batch.length; ++i) {
    float* row = logits.data() + i * vocab;
    const bool last_of_row = (i + 1) % batch.length == 0;
    const int32_t target = last_of_row ? kPadding : batch.tokens[static_cast<size_t>(i + 1)];
    if (target == kPadding) {
      std::fill_n(row, vocab, 0.0F);
      continue;
    }
    const double largest = *std::max_element(row, row + vocab);
    double total = 0;
    for (int64_t v = 0; v < vocab; ++v) total += std::exp(row[v] - largest);
    sum += std::log(total) + largest - row[target];
    for (int64_t v = 0; v < vocab; ++v)
      row[v] = static_cast<float>(scale *
                                  (std::exp(row[v] - largest) / total - (v == target ? 1.0 : 0.0)));
  }
  return sum * scale;
}

double scaled_reference_loss(const Tensor& logits, const TokenBatch& batch, int64_t total_targets,
                             double factor) {
  const double loss = reference_loss(logits, batch, total_targets);
  if (factor != 1)
    for (float& value : logits.values()) value = static_cast<float>(factor * value);
  return factor * loss;
}

std::unique_ptr<Optimizer> reference_optimizer(const std::string& name, int64_t size) {
  if (name == "sgd") return std::make_unique<Sgd>();
  require(name == "adam", "there is no optimizer '{}'", name);
  return std::make_unique<Adam>(size, AdamConfig{.epsilon = 1e-2F}, adam);
}

}  // namespace lab::grading
