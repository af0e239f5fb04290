// Task 5: the norm of a gradient of which every rank holds shards.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/grading/training_case.h"
#include "tests/labs/09_sharded/promises.h"

namespace lab09 {
namespace {

using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;

constexpr int64_t kSizes[] = {64, 384, 128};  // as in task 2

double squares(const Parcel& input, size_t part) {
  double sum = 0;
  for (double g : lab::grading::to_doubles(input.tensor(fmt::format("own.{}", part)))) sum += g * g;
  return sum;
}

double squares(const Parcel& input) {
  return squares(input, 0) + squares(input, 1) + squares(input, 2);
}

/// By what `got` was multiplied, if by one number; 0 where there is nothing to multiply.
std::optional<double> factor_of(const Numbers& got, const Numbers& before) {
  const auto largest =
      std::ranges::max_element(before, {}, [](double value) { return std::abs(value); });
  if (got.size() != before.size() || *largest == 0) return 0;
  const double factor = got[static_cast<size_t>(largest - before.begin())] / *largest;
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - factor * before[i]) <= 1e-5 * std::abs(factor * *largest))) return {};
  return factor;
}

/// One norm, so one factor for all parts of all ranks.
void expect_one_factor(double norm, double max_norm, const std::vector<Parcel>& inputs,
                       const std::vector<Parcel>& ranks) {
  const double right = norm > max_norm ? max_norm / norm : 1;
  for (size_t r = 0; r < ranks.size(); ++r) {
    std::vector<double> factors;
    for (size_t p = 0; p < std::size(kSizes); ++p) {
      const std::string entry = fmt::format("own.{}", p);
      const auto factor = factor_of(lab::grading::to_doubles(ranks[r].tensor(entry)),
                                    lab::grading::to_doubles(inputs[r].tensor(entry)));
      if (!factor) return;  // numbers that no factor explains are told one by one
      if (*factor != 0) factors.push_back(*factor);
    }
    if (factors.empty()) continue;
    const auto [least, most] = std::ranges::minmax(factors);
    if (most - least <= 1e-5 * std::abs(most)) continue;
    stop(
        fmt::format("parts are scaled by different factors: the norm is that of the whole model, "
                    "not of each part, and all gradients are scaled by max_norm / norm\nrank {}: "
                    "the parts are multiplied by {:.4g}, expected {:.4g} for all of them (norm "
                    "{:.4g}, max_norm {:.4g})",
                    r, fmt::join(factors, ", "), right, norm, max_norm));
  }
}

void judge(double max_norm, const std::vector<Parcel>& inputs, const std::vector<Parcel>& ranks) {
  double all = 0;
  double norms = 0;
  for (const Parcel& input : inputs) {
    all += squares(input);
    norms += std::sqrt(squares(input));
  }
  const double norm = std::sqrt(all);
  lab::grading::expect_on_every_rank(lab::grading::numbers_of(ranks, "norm"), [&](size_t rank) {
    return lab::grading::Expected{
        .what = "the norm that clip_gradients returns",
        .values = {norm},
        .tolerance = {1e-5 * norm + 1e-12},
        .name = {},
        .mistakes =
            [=, &inputs] {
              double of_parts = 0;
              for (const Parcel& input : inputs)
                for (size_t p = 0; p < std::size(kSizes); ++p)
                  of_parts += std::sqrt(squares(input, p));
              return std::vector<Mistake>{
                  {{std::sqrt(squares(inputs[rank]))},
                   "the norm of this rank's shards alone: add up the squares of all ranks"},
                  {{norms}, "a sum of norms: add up squares, and take one root at the end"},
                  {{of_parts}, "a sum of norms: add up squares, and take one root at the end"},
                  {{all}, "the square of the norm: the root is missing"},
                  {{max_norm}, "the norm after clipping: return the one before"},
                  {{norm / std::sqrt(static_cast<double>(inputs.size()))},
                   "a mean over ranks: shards are different parts of one gradient"}};
            },
        .if_not_finite = {}};
  });
  expect_one_factor(norm, max_norm, inputs, ranks);
  const double factor = norm > max_norm ? max_norm / norm : 1;
  for (size_t p = 0; p < std::size(kSizes); ++p)
    lab::grading::expect_on_every_rank(
        lab::grading::tensors_of(ranks, fmt::format("own.{}", p)),
        [&](size_t rank) {
          Numbers values = lab::grading::to_doubles(inputs[rank].tensor(fmt::format("own.{}", p)));
          const Numbers before = values;
          for (double& value : values) value *= factor;
          const double own = std::sqrt(squares(inputs[rank]));
          return lab::grading::Expected{
              .what = fmt::format("own_gradient of part {} after clipping", p),
              .values = values,
              .tolerance = lab::grading::relative_tolerance(values, 1e-5, 1e-6),
              .name = {},
              .mistakes =
                  [=] {
                    const auto scaled = [&before](double by) {
                      Numbers numbers = before;
                      for (double& value : numbers) value *= by;
                      return numbers;
                    };
                    return std::vector<Mistake>{
                        {before, "not scaled, although the norm exceeds max_norm"},
                        {scaled(max_norm / norm),
                         "scaled, although the norm does not exceed max_norm"},
                        {scaled(own > max_norm ? max_norm / own : 1),
                         "scaled by the norm of this rank's shards: ranks scale differently"},
                        {scaled(factor * factor), "scaled twice"}};
                  },
              .if_not_finite = {}};
        },
        [&](size_t) { return fmt::format("norm {:.4g}, max_norm {:.4g}", norm, max_norm); });
  for (size_t r = 0; r < ranks.size(); ++r) {
    size_t messages = 0;
    for (const Operation& operation : operations_of(ranks[r])) {
      if (operation.kind >= lab::OpKind::kForward) continue;
      ++messages;
      if (operation.bytes > 16)
        stop(
            fmt::format("clip_gradients sends {} bytes: the norm needs one number of each rank, "
                        "no gradients",
                        operation.bytes));
    }
    if (messages > 1)
      stop(fmt::format("clip_gradients sends {} messages: one is enough, for all parts together",
                       messages));
  }
}

TEST(Task5, TheNormOfAllShards) {
  const uint64_t seed = 500 + 1000 * lab::grading::scenario_seed();
  for (const size_t n : {3, 1, 2, 6}) {
    std::vector<lab::grading::Call> calls;
    std::vector<double> max_norms;
    // Norms far above, just above and just below the limit, far below, tiny, and of one rank only.
    const double scales[] = {1, 1, 1, 0.001, 1e-12, 1, 1000};
    const double limits[] = {0.3, 0.999, 1.001, 100, 2, 0.5, 1e-3};  // times the norm
    for (size_t k = 0; k < std::size(scales); ++k) {
      lab::grading::Call call{.scenario = "clip", .inputs = std::vector<Parcel>(n)};
      double all = 0;
      for (size_t r = 0; r < n; ++r) {
        const bool empty = k == 5 && r > 0;
        call.inputs[r].set("stage", 1 + static_cast<double>(k % 3));
        for (size_t p = 0; p < std::size(kSizes); ++p) {
          const auto ranks = static_cast<int64_t>(n);
          call.inputs[r].set(
              fmt::format("own.{}", p),
              lab::grading::draw_tensor({(kSizes[p] + ranks - 1) / ranks}, empty ? 0 : scales[k],
                                        seed + 100 * k + 10 * r + p));
        }
        all += squares(call.inputs[r]);
      }
      max_norms.push_back(limits[k] * std::sqrt(all));
      for (Parcel& input : call.inputs) input.set("max_norm", max_norms.back());
      call.name = fmt::format("{} ranks, norm {:.3g}", n, std::sqrt(all));
      calls.push_back(call);
    }
    judge_calls(calls, simulated("5", 50 + n), [&](size_t k, const std::vector<Parcel>& ranks) {
      judge(max_norms[k], calls[k].inputs, ranks);
    });
  }
}

// Without the large model, whose gradients are just short enough: TheNormOfAllShards has such ones,
// and finds the mistake by name in an instant.
constexpr size_t kSmallCases = 5;
TEST(Task5, Steps) { expect_steps(3, 3, 51, simulated("5", 52), kSmallCases); }
TEST(Task5, OverGloo) { expect_steps(1, 2, 53, over_gloo("5"), kCasesOverGloo); }

}  // namespace
}  // namespace lab09
