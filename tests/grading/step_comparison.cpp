// Finding the first difference between two recordings of training steps.
#include "tests/grading/step_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/model/llama_stage.h"
#include "tests/grading/compare.h"
#include "tests/grading/training_rank.h"

namespace lab::grading {
namespace {

/// One thing that every rank records in a step.
struct Quantity {
  std::string entry;                                        // "gradients.0"
  std::string what;                                         // in words
  enum { kNumbers, kTensor, kParameters } kind = kNumbers;  // parameters: laid out as the weights
};

/// Within this fraction numbers of a step (from 0) are the same.
double same_fraction(int step) { return kSameFraction * (step + 1); }

Numbers values_of(const Quantity& quantity, const Parcel& recorded) {
  return quantity.kind == Quantity::kNumbers ? recorded.numbers(quantity.entry)
                                             : to_doubles(recorded.tensor(quantity.entry));
}

/// Those of a step, in the order in which a step computes them.
std::vector<Quantity> quantities(const std::vector<Parcel>& inputs, int step) {
  std::vector<Quantity> all;
  double microbatches = 0;
  for (const Parcel& input : inputs)
    if (const std::string entry = fmt::format("microbatches.{}", step); input.has(entry))
      microbatches = std::max(microbatches, input.number(entry));
  for (int k = 0; k < static_cast<int>(microbatches); ++k)
    all.push_back({fmt::format("logits.{}.{}", step, k),
                   fmt::format("microbatch {}, the logits given to loss", k + 1),
                   Quantity::kTensor});
  all.push_back({fmt::format("gradients.{}", step), "the gradients given to the optimizer",
                 Quantity::kParameters});
  all.push_back({fmt::format("rate.{}", step), "the learning rate given to the optimizer"});
  all.push_back(
      {fmt::format("weights.{}", step), "the weights after the step", Quantity::kParameters});
  all.push_back({fmt::format("loss.{}", step), "the loss that train_step returns"});
  return all;
}

Expected expected_values(const std::string& what, const Numbers& right, double largest,
                         double fraction) {
  return {.what = what,
          .values = right,
          .tolerance = relative_tolerance(right, fraction, 0.1 * largest),
          .name = [size = right.size()](size_t i) {
            return size == 1 ? std::string() : fmt::format("element {}", i);
          }};
}

/// The first parameter that differs, and how many others do; in the order of the forward pass, or
/// for gradients in that of the backward pass.
std::string difference_of_parameters(const Quantity& quantity, const Parcel& input,
                                     const Numbers& got, const Numbers& right, double fraction) {
  const LlamaStage stage(model_of(input), span_of(input), Device::kCpu, /*seed=*/0);
  const double largest = largest_magnitude(right);
  std::vector<std::string> differences;
  size_t parameters = 0;
  auto begin = right.begin();
  auto own = got.begin();
  for (const Parameter& parameter : stage.named_parameters()) {
    const auto size = parameter.value.numel();
    const std::string difference = lab::grading::difference(
        {own, own + size}, expected_values(parameter.name + " of " + quantity.what,
                                           {begin, begin + size}, largest, fraction));
    if (!difference.empty()) differences.push_back(difference);
    begin += size;
    own += size;
    ++parameters;
  }
  if (differences.empty()) return "";
  const bool backward = quantity.entry.starts_with("gradients");
  return fmt::format("{}\n{} of the rank's {} parameter tensors differ",
                     backward ? differences.back() : differences.front(), differences.size(),
                     parameters);
}

std::string difference_of(const Quantity& quantity, const Parcel& input, const Parcel& got,
                          const Parcel& expected, double fraction) {
  if (!got.has(quantity.entry) && !expected.has(quantity.entry)) return "";
  if (!got.has(quantity.entry)) return quantity.what + ": there are none";
  if (!expected.has(quantity.entry)) return quantity.what + ": the reference has none here";
  const Numbers right = values_of(quantity, expected);
  const Numbers own = values_of(quantity, got);
  if (quantity.kind == Quantity::kParameters && own.size() == right.size())
    return difference_of_parameters(quantity, input, own, right, fraction);
  const auto is_nan = [](const Numbers& n) { return n.size() == 1 && std::isnan(n[0]); };
  if (is_nan(own) && is_nan(right)) return "";  // a loss (TrainingCase::nan_loss_step)
  return difference(own, expected_values(quantity.what, right, largest_magnitude(right), fraction));
}

/// The divisors given to loss, where they differ. Not wrong in themselves: a step may divide later.
std::string divisors(const Parcel& got, const Parcel& expected, int step) {
  const std::string entry = fmt::format("totals.{}", step);
  const Numbers own = got.numbers(entry);
  const Numbers right = expected.numbers(entry);
  if (own == right) return "";
  return fmt::format("\nloss was given total_targets {}, in the reference {}", fmt::join(own, ", "),
                     fmt::join(right, ", "));
}

}  // namespace

std::string first_difference(const std::vector<Parcel>& inputs, const std::vector<Parcel>& got,
                             const std::vector<Parcel>& expected) {
  int steps = 0;  // of several pipelines in one world, one may take more than another
  for (const Parcel& input : inputs)
    steps = std::max(steps, static_cast<int>(input.number("steps")));
  for (int step = 0; step < steps; ++step) {
    const std::vector<Quantity> all = quantities(inputs, step);
    for (size_t q = 0; q < all.size(); ++q) {
      std::vector<std::pair<size_t, std::string>> wrong;  // by rank
      std::vector<size_t> right;
      for (size_t rank = 0; rank < got.size(); ++rank) {
        const std::string difference =
            difference_of(all[q], inputs[rank], got[rank], expected[rank], same_fraction(step));
        if (difference.empty())
          right.push_back(rank);
        else
          wrong.emplace_back(rank, difference);
      }
      if (wrong.empty()) continue;
      // In a pipeline gradients travel upstream: the last stage is the first that is wrong.
      const bool gradients = all[q].entry.starts_with("gradients");
      const auto& [rank, difference] =
          gradients && inputs[0].number("stages") > 1 ? wrong.back() : wrong.front();
      return fmt::format(
          "step {} of {}, rank {}, {}{}{}", step + 1, inputs[rank].number("steps"), rank,
          difference, gradients ? divisors(got[rank], expected[rank], step) : "",
          right.empty() ? "" : fmt::format("\nthe same on rank {}", fmt::join(right, ", ")));
    }
  }
  return "";
}

}  // namespace lab::grading
