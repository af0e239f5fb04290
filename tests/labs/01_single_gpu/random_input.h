// Inputs for the tests: the same on every machine.
#pragma once

#include <cstdint>
#include <random>

#include "common/data/batch.h"
#include "common/tensor/tensor.h"

namespace lab01 {

/// Uniform in [-scale, scale).
inline lab::Tensor random_tensor(const lab::Shape& shape, double scale, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const lab::Tensor tensor = lab::Tensor::empty(shape);
  for (float& value : tensor.values())
    value = static_cast<float>(scale * (static_cast<double>(generator() >> 11) * 0x1.0p-52 - 1.0));
  return tensor;
}

/// Rows of random tokens; row b keeps lengths[b] of them, the rest is padding.
inline lab::TokenBatch random_tokens(const std::vector<int64_t>& lengths, int64_t length,
                                     int64_t vocab, uint64_t seed) {
  std::mt19937_64 generator(seed);
  lab::TokenBatch batch{static_cast<int64_t>(lengths.size()), length, {}};
  for (int64_t row_length : lengths)
    for (int64_t t = 0; t < length; ++t) {
      const auto token = static_cast<int32_t>(generator() % static_cast<uint64_t>(vocab));
      batch.tokens.push_back(t < row_length ? token : lab::kPadding);
    }
  return batch;
}

}  // namespace lab01
