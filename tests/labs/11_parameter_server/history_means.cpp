// The sums that on_push keeps and the means that it hands to `update`: which mistake they show.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/history.h"

namespace lab11 {
namespace {

using lab::grading::Mistake;
using lab::grading::Numbers;
using Terms = Oracle::Terms;

Numbers mean_of(const std::vector<Terms>& updates, size_t count,
                const std::function<double(const Oracle::Term&, const Terms&)>& weight) {
  Numbers all;
  for (size_t u = 0; u < count; ++u) {
    Numbers mean(updates[u].front().gradient.size(), 0.0);
    for (const Oracle::Term& term : updates[u])
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] += weight(term, updates[u]) * term.gradient[i];
    all.insert(all.end(), mean.begin(), mean.end());
  }
  return all;
}

double samples_of(const Terms& terms) {
  double sum = 0;
  for (const Oracle::Term& term : terms) sum += term.samples;
  return sum;
}

std::vector<Mistake> mean_mistakes(const Oracle& oracle, size_t count) {
  const auto with = [&](const auto& weight) { return mean_of(oracle.terms(), count, weight); };
  const auto per_sample = [](const Oracle::Term& term, const Terms& all) {
    return samples_of(all) > 0 ? term.samples / samples_of(all) : 0.0;
  };
  std::vector<Mistake> mistakes{
      {with([](const auto&, const Terms& all) { return 1.0 / static_cast<double>(all.size()); }),
       "the plain mean of n gradients: each counts by its number of samples"},
      {with([](const Oracle::Term& term, const Terms&) { return term.samples; }),
       "a sum over samples that is not divided by their number"},
      {with([](const Oracle::Term& term, const Terms& all) {
         return term.samples / static_cast<double>(all.size());
       }),
       "divided by the number of gradients, not of samples"},
      {with([](const auto&, const Terms&) { return 1.0; }), "a sum of gradients, not their mean"},
      {with([](const Oracle::Term&, const Terms& all) {
         return samples_of(all) > 0 ? 1.0 / samples_of(all) : 0.0;
       }),
       "divided by all samples, but no gradient was multiplied by its own"},
      {with([&](const Oracle::Term& term, const Terms& all) {
         return &term == &all.back() ? (term.samples > 0 ? 1.0 : 0.0) : 0.0;
       }),
       "the last gradient alone: the others are gone"},
      {with([&](const Oracle::Term& term, const Terms& all) {
         return &term == &all.back() ? 0.0 : per_sample(term, all);
       }),
       "the last gradient is missing: add it before the update is made, not after"},
      {with([](const Oracle::Term& term, const Terms& all) {
         double sum = 0;
         for (const Oracle::Term& each : all) sum += std::max(1.0, each.samples);
         return std::max(1.0, term.samples) / sum;
       }),
       "a gradient over 0 samples counts as if it had one: it must not count at all"},
      {with([](const auto&, const Terms&) { return 0.0; }),
       "zeros: is 1 / samples computed as a quotient of integers, which is 0?"}};
  // What is left over.
  Numbers kept_mean;
  for (size_t u = 0; u < count; ++u)
    for (size_t i = 0; i < oracle.elements(); ++i) {
      const double samples = samples_of(oracle.terms()[u]);
      const double before = u > 0 ? kept_mean[(u - 1) * oracle.elements() + i] : 0.0;
      double sum = before;
      for (const Oracle::Term& term : oracle.terms()[u]) sum += term.samples * term.gradient[i];
      kept_mean.push_back(samples > 0 ? sum / samples : 0.0);
    }
  mistakes.push_back({kept_mean, "sum still holds what the previous update has left in it"});
  return mistakes;
}

/// Bounds the rounding error of element i, from the size and the number of its terms.
double rounding(const Terms& terms, size_t i) {
  double magnitude = 0;
  for (const Oracle::Term& term : terms) magnitude += term.samples * std::abs(term.gradient[i]);
  return 1e-7 * (8 + static_cast<double>(terms.size())) * magnitude + 1e-12;
}

}  // namespace

std::string wrong_sum(const Oracle& oracle, const Numbers& sum, bool due) {
  const Numbers& right = oracle.state().sum;
  if (sum.size() != right.size())
    return fmt::format("sum has {} elements, but the gradients have {}{}", sum.size(), right.size(),
                       due ? ": it must begin anew with zeros of the same shape" : "");
  for (size_t i = 0; i < sum.size(); ++i) {
    if (std::abs(sum[i] - right[i]) <= (due ? 0 : rounding(oracle.pending(), i))) continue;
    if (!std::isfinite(right[i]) && !std::isfinite(sum[i])) continue;
    if (due)
      return fmt::format(
          "sum does not begin anew: element {} is {:.9g} after the update, but should be 0", i,
          sum[i]);
    return fmt::format(
        "sum is wrong: it must hold the gradients that have come for the next update, each times "
        "its samples; element {} of {} is {:.9g}, but should be {:.9g}",
        i, sum.size(), sum[i], right[i]);
  }
  return {};
}

void judge_means(const Oracle& oracle, const Numbers& got, const std::string& sums) {
  const size_t size = oracle.elements();
  const size_t count = std::min(oracle.means().size(), got.size() / size);
  Numbers right, tolerance,
      shown(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(count * size));
  for (size_t u = 0; u < count; ++u)
    for (size_t i = 0; i < size; ++i) {
      right.push_back(oracle.means()[u][i]);
      tolerance.push_back(rounding(oracle.terms()[u], i) /
                          std::max(1.0, samples_of(oracle.terms()[u])));
      if (!std::isfinite(right.back())) shown[u * size + i] = right.back() = tolerance.back() = 0;
    }
  if (shown.empty()) return;
  lab::grading::expect(
      shown,
      {.what = "the mean gradients that update is called with",
       .values = right,
       .tolerance = tolerance,
       .name =
           [&](size_t i) { return fmt::format("update {}, element {}", i / size + 1, i % size); },
       .mistakes = [&] { return mean_mistakes(oracle, count); },
       .if_not_finite = "a mean that is not a number: update with zeros if there is no sample",
       .unexplained = sums});
}

}  // namespace lab11
