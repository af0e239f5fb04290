#include "common/run/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/error.h"

namespace lab {

void SamplingOptions::validate() const {
  require(std::isfinite(temperature) && temperature >= 0.0,
          "temperature {} must be 0 (most likely token) or positive", temperature);
  require(top_k >= 0, "top-k {} must be 0 (all tokens) or positive", top_k);
  require(top_p > 0.0 && top_p <= 1.0, "top-p {} must lie in (0, 1]", top_p);
}

TokenSampler::TokenSampler(const SamplingOptions& options)
    : options_(options), random_(options.seed) {
  options_.validate();
}

int32_t TokenSampler::pick(std::span<const float> logits) {
  require(!logits.empty(), "cannot pick a token from an empty vocabulary");
  const bool numbers =
      std::all_of(logits.begin(), logits.end(), [](float score) { return std::isfinite(score); });
  require(numbers, "the model's scores are not numbers: its weights are damaged");

  const auto more_likely = [&](int32_t a, int32_t b) {
    const float score_a = logits[static_cast<size_t>(a)];
    const float score_b = logits[static_cast<size_t>(b)];
    return score_a > score_b || (score_a == score_b && a < b);
  };
  std::vector<int32_t> tokens(logits.size());  // candidates, the most likely first
  std::iota(tokens.begin(), tokens.end(), 0);
  if (options_.temperature == 0.0)
    return *std::min_element(tokens.begin(), tokens.end(), more_likely);

  size_t count = tokens.size();
  if (options_.top_k > 0) count = std::min(count, static_cast<size_t>(options_.top_k));
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count),
                    tokens.end(), more_likely);
  tokens.resize(count);

  // Weights relative to the most likely token, so that nothing overflows.
  const double best = logits[static_cast<size_t>(tokens[0])];
  std::vector<double> weights(count);
  for (size_t i = 0; i < count; ++i)
    weights[i] = std::exp((logits[static_cast<size_t>(tokens[i])] - best) / options_.temperature);

  const double nucleus = options_.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double total = 0.0;
  size_t kept = 0;
  do total += weights[kept++];
  while (kept < count && total < nucleus);

  // 53 random bits give a double in [0, 1); the standard's distributions differ between libraries.
  const double point = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
  double sum = 0.0;
  for (size_t i = 0; i + 1 < kept; ++i) {
    sum += weights[i];
    if (point < sum) return tokens[i];
  }
  return tokens[kept - 1];
}

}  // namespace lab
