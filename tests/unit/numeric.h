// Helpers for testing operations: random tensors, comparisons, float64 references, finite
// differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/tensor.h"

namespace lab::test {

using Doubles = std::vector<double>;

inline Tensor random_tensor(Shape shape, uint64_t seed, float size = 1.0F) {
  Tensor tensor = Tensor::empty(std::move(shape));
  std::mt19937_64 engine(seed);
  for (float& x : tensor.values())
    x = size * (static_cast<float>(engine() >> 40) * 0x1p-23F - 1.0F);
  return tensor;
}

/// The numbers of a tensor, strided or not.
inline Doubles to_doubles(const Tensor& tensor) {
  const Tensor dense = tensor.clone();
  return {dense.values().begin(), dense.values().end()};
}

/// Equal shapes, and equal numbers to the last bit.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.clone();
  const Tensor y = b.clone();
  return a.shape() == b.shape() && std::memcmp(x.data(), y.data(), x.bytes()) == 0;
}

/// Largest difference, relative to the largest expected magnitude (or to 0.01, where all expected
/// values are smaller: rounding errors of inputs around 1 do not vanish with the result).
inline double relative_error(const Doubles& actual, const Doubles& expected) {
  if (actual.size() != expected.size()) return INFINITY;
  double difference = 0.0;
  double magnitude = 0.01;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i])) return INFINITY;
    difference = std::max(difference, std::abs(actual[i] - expected[i]));
    magnitude = std::max(magnitude, std::abs(expected[i]));
  }
  return difference / magnitude;
}

inline void expect_near(const Tensor& actual, const Doubles& expected, double tolerance,
                        const std::string& what) {
  EXPECT_LE(relative_error(to_doubles(actual), expected), tolerance) << what;
}

/// A function of several arrays, in float64.
using Reference = std::function<Doubles(const std::vector<Doubles>& inputs)>;

/// Gradient of sum(weights * f(inputs)) with respect to inputs[which], by central differences.
inline Doubles numeric_gradient(const Reference& f, std::vector<Doubles> inputs, size_t which,
                                const Doubles& weights) {
  constexpr double kStep = 1e-5;
  const auto objective = [&] {
    const Doubles y = f(inputs);
    double sum = 0.0;
    for (size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
    return sum;
  };
  Doubles gradient(inputs[which].size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double x = inputs[which][i];
    inputs[which][i] = x + kStep;
    const double above = objective();
    inputs[which][i] = x - kStep;
    gradient[i] = (above - objective()) / (2.0 * kStep);
    inputs[which][i] = x;
  }
  return gradient;
}

inline Doubles plus(Doubles a, const Doubles& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

}  // namespace lab::test
