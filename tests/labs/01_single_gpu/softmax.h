// Softmax and cross-entropy of one position in double, for rank program and verdicts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace lab01 {

struct Softmax {
  explicit Softmax(std::span<const float> row)
      : scores(row), largest(*std::ranges::max_element(row)), probabilities(row.size()) {
    for (size_t v = 0; v < row.size(); ++v) sum += probabilities[v] = std::exp(row[v] - largest);
    for (double& p : probabilities) p /= sum;
  }

  double loss(size_t target) const { return std::log(sum) - (scores[target] - largest); }

  std::span<const float> scores;
  double largest = 0;
  double sum = 0;  // of exp(score - largest)
  std::vector<double> probabilities;
};

}  // namespace lab01
