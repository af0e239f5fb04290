// Task 5: the norm of a gradient of which every rank holds shards.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/grading/training_case.h"
#include "tests/labs/09_sharded/promises.h"
#include "tests/labs/09_sharded/rank_steps.h"

namespace lab09::task5 {
namespace {

using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;

double squares(const Parcel& input, size_t part) {
  double sum = 0;
  for (double g : lab::grading::to_doubles(input.tensor(fmt::format("own.{}", part)))) sum += g * g;
  return sum;
}

double squares(const Parcel& input) {
  double sum = 0;
  for (size_t p = 0; p < std::size(kSizes); ++p) sum += squares(input, p);
  return sum;
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
    stop(fmt::format(
        "parts are scaled by different factors: use the norm of the whole model, not of each part, "
        "and scale all gradients by max_norm / norm\nrank {}: the parts are multiplied by {:.4g}, "
        "expected {:.4g} for all of them (norm {:.4g}, max_norm {:.4g})",
        r, fmt::join(factors, ", "), right, norm, max_norm));
  }
}

/// What else might be taken for the norm.
std::vector<Mistake> norm_mistakes(double max_norm, const std::vector<Parcel>& inputs,
                                   size_t rank) {
  double all = 0;
  double norms = 0;                            // of the ranks' shards, added up
  double largest = 0;                          // of these
  double whole = 0;                            // squares of each part, cut to whole numbers
  double pieces = 0;                           // norms of each part of each rank, added up
  double by_rank = 0;                          // the same, but squares are added over ranks
  Numbers squares_of(std::size(kSizes), 0.0);  // of all ranks, by part
  for (const Parcel& input : inputs) {
    double own = 0;
    for (size_t p = 0; p < std::size(kSizes); ++p) {
      squares_of[p] += squares(input, p);
      whole += std::floor(squares(input, p));
      own += std::sqrt(squares(input, p));
    }
    all += squares(input);
    norms += std::sqrt(squares(input));
    largest = std::max(largest, std::sqrt(squares(input)));
    pieces += own;
    by_rank += own * own;
  }
  const auto ranks = static_cast<double>(inputs.size());
  double parts = 0;
  double beside = 0;  // squares of what lies beside the shards in stage 1
  for (size_t p = 0; p < std::size(kSizes); ++p) {
    parts += std::sqrt(squares_of[p]);
    beside += (ranks - 1) * static_cast<double>(kSizes[p]) * kBesideTheShard * kBesideTheShard;
  }
  const std::string add_squares = "a sum of norms: add up squares, and take one root at the end";
  std::vector<Mistake> mistakes{
      {{std::sqrt(squares(inputs[rank]))},
       "the norm of this rank's shards alone: add up the squares of all ranks"},
      {{0.0},
       std::isinf(max_norm)
           ? "0, because max_norm is infinite: return the norm whether anything is scaled or not"
           : "0, although there are gradients: in float the square of 1e-25 is 0; "
             "add squares in double, and send doubles"},
      {{norms}, add_squares},
      {{pieces}, add_squares},
      {{parts}, add_squares},
      {{std::sqrt(by_rank)}, add_squares},
      {{std::sqrt(all + beside)},
       "the norm of all of `gradient`: in stage 1 only own_gradient holds the sum"},
      {{largest}, "the largest of the ranks' norms: add up the squares of all ranks"},
      {{all}, "the square of the norm: the root is missing"},
      {{std::sqrt(whole)},
       "squares are added up as whole numbers: a sum that begins with the int 0 is an int; "
       "std::accumulate, for instance, needs 0.0"},
      {{max_norm}, "the norm after clipping: return the one before"},
      {{std::sqrt(all / ranks)}, "a mean over ranks: shards are different parts of one gradient"}};
  for (size_t p = 0; p < std::size(kSizes); ++p) {
    mistakes.push_back(
        {{std::sqrt(all - squares_of[p])}, fmt::format("the squares of part {} are missing", p)});
    mistakes.push_back({{std::sqrt(squares_of[p])}, fmt::format("the norm of part {} alone", p)});
  }
  return mistakes;
}

void judge(double max_norm, const std::vector<Parcel>& inputs, const std::vector<Parcel>& ranks) {
  double all = 0;
  for (const Parcel& input : inputs) all += squares(input);
  const double norm = std::sqrt(all);
  if (!std::isfinite(norm)) {
    for (size_t r = 0; r < ranks.size(); ++r)
      if (std::isfinite(ranks[r].number("norm")))
        stop(
            fmt::format("rank {}: the norm that clip_gradients returns is {:.4g}, although a "
                        "gradient of the model is infinite: then the norm must not be finite",
                        r, ranks[r].number("norm")));
    return;
  }
  lab::grading::expect_on_every_rank(
      lab::grading::numbers_of(ranks, "norm"),
      [&](size_t rank) {
        return lab::grading::Expected{
            .what = "the norm that clip_gradients returns",
            .values = {norm},
            .tolerance = {1e-5 * norm + 1e-12},
            .name = {},
            .mistakes = [=, &inputs] { return norm_mistakes(max_norm, inputs, rank); },
            .if_not_finite =
                "the norm that clip_gradients returns is not finite, although all gradients are: "
                "in "
                "float the square of 1e20 is infinite; add squares in double, and send doubles"};
      },
      [&](size_t) { return fmt::format("max_norm {:.4g}", max_norm); });
  lab::grading::expect_same_bits(lab::grading::numbers_of(ranks, "norm"), "the norm");
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
                        {scaled(factor * factor), "scaled twice"},
                        {scaled(max_norm / (norm + 1e-6)),
                         "scaled by max_norm / (norm + 1e-6), as PyTorch does it: scale by "
                         "max_norm / norm, and only if the norm exceeds max_norm"},
                        {scaled(max_norm / norm / norm),
                         "scaled by max_norm / (norm * norm): the root is missing"},
                        {scaled(1 / norm), "divided by the norm: scale by max_norm / norm"},
                        {scaled(norm / max_norm),
                         "multiplied by norm / max_norm: it is the other way round"}};
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
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const uint64_t seed = 500 + 1000 * lab::grading::scenario_seed();
  for (const size_t n : {3, 1, 2, 9, 12}) {  // of 12, one has nothing but padding of the first part
    std::vector<lab::grading::Call> calls;
    std::vector<double> max_norms;
    // Norms far above, just above and just below the limit, far below, tiny, of one rank only,
    // short ones that are still too long, one whose square is no float, no limit at all, and
    // gradients that are infinite.
    const double scales[] = {1, 1, 1, 0.001, 1e-12, 1, 1000, 0.001, 1e20, 1, kInfinity};
    const double limits[] = {0.3,  0.999, 1.001, 100,       2, 0.5,
                             1e-3, 0.25,  1e-20, kInfinity, 1};  // times the norm
    for (size_t k = 0; k < std::size(scales); ++k) {
      lab::grading::Call call{.scenario = "clip", .inputs = std::vector<Parcel>(n)};
      double all = 0;
      for (size_t r = 0; r < n; ++r) {
        const bool empty = k == 5 && r > 0;
        call.inputs[r].set("stage", 1 + static_cast<double>(k % 3));
        for (size_t p = 0; p < std::size(kSizes); ++p)
          call.inputs[r].set(fmt::format("own.{}", p), draw_shard(p, r, n, empty ? 0 : scales[k],
                                                                  seed + 100 * k + 10 * r + p));
        all += squares(call.inputs[r]);
      }
      max_norms.push_back(std::isfinite(all) ? limits[k] * std::sqrt(all) : 1);
      for (Parcel& input : call.inputs) input.set("max_norm", max_norms.back());
      call.name = fmt::format("ranks: {}, norm {:.3g}", n, std::sqrt(all));
      calls.push_back(call);
    }
    judge_calls(calls, simulated("5", 50 + n), [&](size_t k, const std::vector<Parcel>& ranks) {
      judge(max_norms[k], calls[k].inputs, ranks);
    });
  }
}

// Not the large model, whose gradients are just short enough: TheNormOfAllShards has such ones, and
// finds the mistake by name in an instant.
TEST(Task5, Steps) { expect_steps(3, 3, 51, simulated("5", 52), kSmallCases); }
TEST(Task5, OverGloo) { expect_steps(1, 2, 53, over_gloo("5"), kCasesOverGloo); }

}  // namespace
}  // namespace lab09::task5
