// TokenSampler: picks the next token of a text from the model's scores.
#pragma once

#include <cstdint>
#include <random>
#include <span>

namespace lab {

struct SamplingOptions {
  double temperature = 0.8;  // scores are divided by it; 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  double top_p = 0.9;        // only the most likely tokens that together reach this probability
  uint64_t seed = 1;

  /// Throws Error naming the first value that is out of range.
  void validate() const;
};

/// Draws from softmax(logits / temperature), cut to `top_k` tokens and then to the nucleus `top_p`
/// (Holtzman et al., 2020), in this order as in Hugging Face's generate. The same seed and the same
/// logits give the same tokens on every machine.
class TokenSampler {
 public:
  explicit TokenSampler(const SamplingOptions& options);

  /// Index of the token drawn. Ties are ordered by index. Throws Error for logits that are not
  /// numbers.
  int32_t pick(std::span<const float> logits);

 private:
  SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace lab
