#include "common/optim/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "common/error.h"

namespace lab {

double GradientCheck::error() const {
  const double largest = std::max(size, std::abs(difference));
  return largest == 0 ? 0 : std::abs(gradient - difference) / largest;
}

GradientCheck check_gradient(std::span<float> values, std::span<const float> gradient,
                             const std::function<double()>& function, float step, uint64_t seed) {
  require(values.size() == gradient.size(), "{} values, but {} gradients", values.size(),
          gradient.size());
  require(step > 0, "a step of {}: give more than 0", step);
  const std::vector<float> before(values.begin(), values.end());
  std::vector<float> steps(values.size());
  std::mt19937_64 random(seed);
  for (float& s : steps) s = random() % 2 == 0 ? step : -step;

  // x + h is rounded, so what counts is the distance between the points where f was computed.
  const auto move = [&](float sign) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = before[i] + sign * steps[i];
    return function();
  };
  GradientCheck check;
  const double above = move(1);
  for (size_t i = 0; i < values.size(); ++i) check.gradient += double{gradient[i]} * values[i];
  const double below = move(-1);
  for (size_t i = 0; i < values.size(); ++i) check.gradient -= double{gradient[i]} * values[i];
  std::ranges::copy(before, values.begin());

  const double distance = 2 * double{step};
  check.gradient /= distance;
  check.difference = (above - below) / distance;
  for (const float g : gradient) check.size += double{g} * g;
  check.size = std::sqrt(check.size);
  return check;
}

}  // namespace lab
