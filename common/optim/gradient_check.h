// Is a gradient right? Compares it with finite differences of the function's values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace lab {

/// The slope of a function in one direction, found in two ways.
struct GradientCheck {
  double gradient = 0;    // the product of gradient and direction
  double difference = 0;  // (f(x + h·direction) - f(x - h·direction)) / 2h
  double size = 0;        // the gradient's Euclidean norm

  /// How far the two are apart, relative to the gradient's size; 0 if all are 0.
  double error() const;
};

/// Checks the gradient of `function` at `values`, which `function` reads. The direction has +1 or
/// -1 for each value, drawn from the seed, so a single value is moved alone and many are checked
/// together. Calls `function` twice, and restores the values.
///
/// The difference has two errors. Curvature adds step² times a third derivative, and rounding about
/// 1e-7 · |f| / step where f is computed in float. Their sum is smallest near the cube root of
/// 1e-7: a step of 0.005 for a value of order 1. n values together move sqrt(n) times as far and
/// need a smaller step.
GradientCheck check_gradient(std::span<float> values, std::span<const float> gradient,
                             const std::function<double()>& function, float step,
                             uint64_t seed = 1);

}  // namespace lab
