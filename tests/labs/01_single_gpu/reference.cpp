// The loss in float64.
#include "tests/labs/01_single_gpu/reference.h"

#include <algorithm>
#include <cmath>

namespace lab01::reference {

Softmax::Softmax(std::span<const float> scores) : probabilities(scores.begin(), scores.end()) {
  const double largest = *std::ranges::max_element(probabilities);
  double sum = 0;
  for (double& p : probabilities) sum += p = std::exp(p - largest);
  for (double& p : probabilities) p /= sum;
  log_sum_exp = largest + std::log(sum);
}

double cross_entropy(std::span<float> logits, int32_t target, double scale) {
  const auto y = static_cast<size_t>(target);
  const Softmax softmax(logits);
  const double loss = softmax.log_sum_exp - logits[y];
  for (size_t v = 0; v < logits.size(); ++v)
    logits[v] = static_cast<float>(scale * (softmax.probabilities[v] - (v == y ? 1.0 : 0.0)));
  return loss;
}

double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets) {
  const auto vocab = static_cast<size_t>(logits.size(-1));
  double sum = 0;
  for (int64_t i = 0; i < batch.batch * batch.length; ++i) {
    const std::span<float> row = logits.values().subspan(static_cast<size_t>(i) * vocab, vocab);
    const bool last = (i + 1) % batch.length == 0;
    const int32_t target = last ? lab::kPadding : batch.tokens[static_cast<size_t>(i) + 1];
    if (target == lab::kPadding)
      std::ranges::fill(row, 0.0F);
    else
      sum += cross_entropy(row, target, 1.0 / static_cast<double>(total_targets));
  }
  return total_targets > 0 ? sum / static_cast<double>(total_targets) : 0.0;
}

}  // namespace lab01::reference
