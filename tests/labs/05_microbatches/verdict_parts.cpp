// Inputs of waves and steps, and what the oracle says about them.
#include "tests/labs/05_microbatches/verdict_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab05 {

using lab::TokenBatch;
using lab::grading::Expected;
using lab::grading::Parcel;

namespace {

constexpr double kTolerance = 1e-6;
constexpr int64_t kLength = 8;  // T of microbatches of one shape

}  // namespace

std::vector<TokenBatch> full_microbatches(int count) {
  std::vector<TokenBatch> batches;
  for (int k = 0; k < count; ++k)
    batches.push_back(lab01::random_tokens({kLength}, kLength, pipeline_tests::kVocab,
                                           500 + static_cast<uint64_t>(k)));
  return batches;
}

std::vector<TokenBatch> unequal_microbatches(int count) {
  std::vector<TokenBatch> batches;
  for (int k = 0; k < count; ++k)
    batches.push_back(lab01::random_tokens({2 + (3 * k) % 7, kLength - (2 * k) % 5}, kLength,
                                           pipeline_tests::kVocab, 600 + static_cast<uint64_t>(k)));
  return batches;
}

std::vector<TokenBatch> shaped_microbatches(int count) {
  std::vector<TokenBatch> batches;
  for (int k = 0; k < count; ++k) {
    const int64_t length = kLength - (2 * k) % 5;
    const std::vector<int64_t> rows(static_cast<size_t>(1 + (k + 1) % 3), length);
    batches.push_back(
        lab01::random_tokens(rows, length, pipeline_tests::kVocab, 700 + static_cast<uint64_t>(k)));
  }
  return batches;
}

void set_microbatches(Parcel& parcel, const std::vector<TokenBatch>& batches) {
  parcel.set("microbatches", static_cast<double>(batches.size()));
  for (size_t k = 0; k < batches.size(); ++k)
    parcel.set(fmt::format("microbatch{}", k), batches[k]);
}

int64_t targets_of(const std::vector<TokenBatch>& microbatches) {
  int64_t count = 0;
  for (const TokenBatch& batch : microbatches) count += batch.target_count();
  return count;
}

Parts::Parts(const std::vector<TokenBatch>& microbatches, int64_t all)
    : total(static_cast<double>(all)) {
  Parcel input;
  set_microbatches(input, microbatches);
  input.set("total", total);
  const Parcel parcel = oracle("parts", input);
  losses = parcel.numbers("losses");
  for (size_t k = 0; k < microbatches.size(); ++k) {
    gradients.push_back(lab::grading::to_doubles(parcel.tensor(fmt::format("gradients{}", k))));
    targets.push_back(static_cast<double>(microbatches[k].target_count()));
  }
  weights = lab::grading::to_doubles(parcel.tensor("weights"));
  for (double size : parcel.numbers("sizes"))
    ends.push_back(size + (ends.empty() ? 0 : ends.back()));
  std::istringstream lines(parcel.text("names"));
  for (std::string line; std::getline(lines, line);) names.push_back(line);
}

Parts Parts::first(size_t microbatches) const {
  Parts some = *this;
  some.gradients.resize(microbatches);
  some.losses.resize(microbatches);
  some.targets.resize(microbatches);
  return some;
}

Numbers Parts::combine(const Factor& factor) const {
  Numbers result(weights.size(), 0.0);
  for (size_t k = 0; k < count(); ++k)
    if (const double f = factor(k); f != 0)
      for (size_t i = 0; i < result.size(); ++i) result[i] += f * gradients[k][i];
  return result;
}

double Parts::combine_losses(const Factor& factor) const {
  double result = 0;
  for (size_t k = 0; k < count(); ++k) result += factor(k) * losses[k];
  return result;
}

std::string Parts::name(size_t i) const {
  const auto end = std::ranges::upper_bound(ends, static_cast<double>(i));
  const auto parameter = static_cast<size_t>(end - ends.begin());
  const size_t begin = parameter == 0 ? 0 : static_cast<size_t>(ends[parameter - 1]);
  return fmt::format("{}, element {}", names[parameter], i - begin);
}

Expected Parts::expected(const std::string& what, const Numbers& values) const {
  Numbers tolerance(values.size(), lab::grading::largest_magnitude(values));
  for (const Numbers& own : gradients)
    for (size_t i = 0; i < own.size(); ++i) tolerance[i] += std::abs(own[i]);
  for (double& t : tolerance) t *= kTolerance;
  return {.what = what,
          .values = values,
          .tolerance = tolerance,
          .name = [this](size_t i) { return name(i); },
          .mistakes = {},
          .if_not_finite = ""};
}

Expected Parts::expected_loss(const std::string& what, double value) const {
  return {.what = what,
          .values = {value},
          .tolerance = {kTolerance * std::abs(value)},
          .name = {},
          .mistakes = {},
          .if_not_finite = ""};
}

double norm(const Numbers& values) {
  double squares = 0;
  for (double value : values) squares += value * value;
  return std::sqrt(squares);
}

Numbers clipped(Numbers gradients, double max_norm) {
  const double factor = max_norm / norm(gradients);
  if (max_norm > 0 && factor < 1)
    for (double& g : gradients) g *= factor;
  return gradients;
}

}  // namespace lab05
