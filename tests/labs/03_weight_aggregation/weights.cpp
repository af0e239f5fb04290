// Right and wrong averages, and what a rank may send for one.
#include "tests/labs/03_weight_aggregation/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace lab03 {
namespace {

using lab::Shape;
using lab::Tensor;
using lab::grading::Mistake;
using lab::grading::Parcel;

/// Of the sum of the absolute terms: another order of summation, or another place of scaling, moves
/// the last bits of float32.
constexpr double kTolerance = 1e-6;

/// Some weights are still this rank's own, scaled or not; all others are right.
void add_left_out(const RankWeights& w, size_t self, const Numbers& got,
                  std::vector<Mistake>& mistakes) {
  for (const double factor : {1.0, w.shares[self]}) {
    Numbers values = w.average();
    std::vector<size_t> left_out;
    for (size_t i = 0; i < values.size(); ++i) {
      const double own = factor * w.values[self][i];
      if (!(std::abs(got[i] - own) <= kTolerance)) continue;
      values[i] = own;
      left_out.push_back(i);
    }
    if (!left_out.empty())
      mistakes.push_back(
          {values, fmt::format("{} of {} weights are left out of the average: the first is {}, the "
                               "last is {}",
                               left_out.size(), values.size(), w.name(left_out.front()),
                               w.name(left_out.back()))});
  }
}

bool within(const Numbers& got, const Numbers& values, const Numbers& magnitude, double fraction) {
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - values[i]) <= fraction * magnitude[i] + 1e-30)) return false;
  return true;
}

/// Hypotheses about wrong weights on rank `self`.
std::vector<Mistake> mistakes(const RankWeights& w, size_t self, const std::vector<Numbers>& got) {
  const auto n = static_cast<double>(w.ranks());
  const Numbers& share = w.shares;
  std::vector<Mistake> all;
  const auto add = [&](const std::function<double(size_t)>& factor, const std::string& message) {
    all.push_back({w.combine(factor), message});
  };
  const bool all_alike = std::ranges::count(got, got.front()) == std::ssize(got);
  if (w.ranks() == 1 || !all_alike)
    add([=](size_t r) { return r == self ? 1.0 : 0.0; },
        "the average never reaches the model: the weights are as before. A Tensor is a handle; "
        "assigning to one makes it point elsewhere and changes no number. Write the result where "
        "the weights are: into the memory of the tensor that was given, on every rank");
  add([&](size_t r) { return r == self ? share[r] : 0.0; },
      "the weights are multiplied by this rank's share, and nothing is added: the sum over the "
      "ranks never reaches the model. reduce leaves it on one rank, all_reduce on all of them");
  add([](size_t) { return 1.0; },
      "a sum of the ranks' weights, not their average: each rank contributes its share");
  add([=](size_t) { return 1 / n; },
      "the shares are ignored: each rank's weights count the same, though their shares differ");
  add([&](size_t) { return share[self]; },
      "the sum over all ranks is multiplied by this rank's share: every rank must multiply its own "
      "weights by its own share before they are added up");
  add([&](size_t r) { return share[r] / n; },
      "averaged twice: the shares add up to 1 already; do not divide by the number of ranks as "
      "well");
  add([&](size_t r) { return share[r] * share[self]; },
      "averaged twice: multiplied by the share before and after the sum");
  add([&](size_t r) { return share[r] * share[r]; },
      "averaged twice: every rank's weights are multiplied by its share two times");
  if (std::ranges::count(share, 0.0) > 0)
    add([&](size_t r) { return share[r] > 0 ? share[r] : 1.0; },
        "a rank whose share is 0 adds its whole weights: multiply them by its share, even by 0");
  for (size_t q = 0; q < w.ranks(); ++q) {
    if (q != self || all_alike)
      add([=](size_t r) { return r == q ? 1.0 : 0.0; },
          fmt::format("all ranks have rank {}'s weights: a broadcast copies, it does not average",
                      q));
    add([&, q](size_t r) { return r == q ? 0.0 : share[r]; },
        fmt::format("what rank {} contributes is missing", q));
    if (share[q] < 1)
      add([&, q](size_t r) { return r == q ? 0.0 : share[r] / (1 - share[q]); },
          fmt::format("rank {}'s weights do not count, and the shares of the others are scaled "
                      "up so that they add up to 1",
                      q));
  }
  if (w.ranks() > 1 && share[self] < 1) add_left_out(w, self, got[self], all);
  const Numbers magnitude = w.magnitude();
  const bool known = std::ranges::any_of(all, [&](const Mistake& mistake) {
    return within(got[self], mistake.values, magnitude, 100 * kTolerance);
  });
  if (!known && within(got[self], w.average(), magnitude, 0.02))
    all.push_back({got[self],
                   "the average is right to a few digits only: are the weights rounded on their "
                   "way, for example to 16 bits?"});
  return all;
}

Numbers normalized(Numbers shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

}  // namespace

Numbers RankWeights::combine(const std::function<double(size_t)>& factor) const {
  Numbers sum(values[0].size(), 0.0);
  for (size_t r = 0; r < ranks(); ++r)
    if (const double f = factor(r); f != 0)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += f * values[r][i];
  return sum;
}

Numbers RankWeights::average() const {
  return combine([this](size_t r) { return shares[r]; });
}

Numbers RankWeights::magnitude() const {
  Numbers sum(values[0].size(), 0.0);
  for (size_t r = 0; r < ranks(); ++r)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += shares[r] * std::abs(values[r][i]);
  return sum;
}

lab::grading::Expected RankWeights::expected(size_t self, const std::vector<Numbers>& got,
                                             const std::string& what) const {
  lab::grading::Expected expected{
      .what = what,
      .values = average(),
      .tolerance = magnitude(),
      .name = name,
      .mistakes = [this, self, &got] { return lab03::mistakes(*this, self, got); },
      .if_not_finite = what + ": not a number, or infinite"};
  for (double& tolerance : expected.tolerance) tolerance = kTolerance * tolerance + 1e-30;
  return expected;
}

RankWeights Case::weights() const {
  RankWeights w{.values = {}, .shares = shares, .name = [](size_t i) {
                  return fmt::format("element {}", i);
                }};
  for (const Tensor& own : values) w.values.push_back(lab::grading::to_doubles(own));
  return w;
}

Case random_case(const std::string& name, const Shape& shape, const Numbers& shares,
                 uint64_t seed) {
  Case c{.name = name, .shares = shares, .values = {}};
  for (size_t r = 0; r < shares.size(); ++r)
    c.values.push_back(lab::grading::draw_tensor(shape, 1.0, ++seed));
  return c;
}

std::vector<Case> cases_for(size_t ranks, uint64_t seed) {
  struct Kind {
    std::string name;
    Shape shape;
    Numbers shares;  // of the first five ranks, before they are made to add up to 1
  };
  const std::vector<Kind> kinds = {
      {"equal shares", kSomeShape, {1, 1, 1, 1, 1}},
      {"unequal shares", kSomeShape, {4, 1, 3, 2, 5}},
      {"nearly equal shares", kSomeShape, {1e5, 1e5 + 1, 1e5 - 1, 1e5 + 3, 1e5}},
      {"a rank without a share", kSomeShape, {3, 0, 1, 2, 0}},
      {"many weights", {140'001}, {1, 2, 4, 3, 1}},
      {"no weights", {0}, {2, 3, 1, 1, 2}},
      {"one weight", {1}, {1, 4, 2, 2, 1}},
      {"a tensor of four dimensions", {2, 3, 2, 5}, {5, 1, 1, 2, 3}},
      {"one rank has it all", {64}, {7, 0, 0, 0, 0}},
      {"the first shape again, with other weights and shares", kSomeShape, {2, 5, 3, 1, 4}},
      {"as many weights in another shape", {4, 24}, {1, 3, 2, 2, 1}},
      {"fewer weights than ranks", {2}, {1, 3, 2, 2, 1}},
      {"a shape as often before, and the shares of another call", kSomeShape, {9, 1, 2, 0, 1}},
  };
  std::vector<Case> cases;
  for (const Kind& kind : kinds) {
    Numbers shares;
    for (size_t r = 0; r < ranks; ++r) shares.push_back(kind.shares[r < 5 ? r : 1 + r % 4]);
    cases.push_back(random_case(kind.name, kind.shape, normalized(shares), seed += 1000));
  }
  Numbers rounded(ranks, 0.0);
  rounded.back() = 1 + 1e-7;
  cases.push_back(random_case("a share above 1 by rounding", kSomeShape, rounded, seed));
  return cases;
}

std::vector<lab::grading::Call> calls_of(const std::string& scenario,
                                         const std::vector<Case>& cases) {
  std::vector<lab::grading::Call> calls;
  for (const Case& c : cases) {
    lab::grading::Call call{
        .scenario = scenario,
        .inputs = {},
        .name = fmt::format("{}; shares {:.4g}", c.name, fmt::join(c.shares, ", "))};
    for (size_t r = 0; r < c.shares.size(); ++r) {
      Parcel input;
      input.set("share", c.shares[r]);
      input.set("weights", c.values[r]);
      call.inputs.push_back(input);
    }
    calls.push_back(call);
  }
  return calls;
}

void expect_whole_fences(const std::vector<Parcel>& results) {
  for (const Parcel& result : results)
    if (result.number("fence_broken") != 0)
      lab::grading::stop(
          "memory around the weights was overwritten: handle weights.numel() numbers, and no more");
}

void expect_one_aggregation(const std::vector<lab::grading::Operation>& sent, uint64_t bytes,
                            size_t rank, size_t ranks, const std::string& if_too_much) {
  std::map<lab::OpKind, uint64_t> of;
  for (const lab::grading::Operation& operation : sent) of[operation.kind] += operation.bytes;
  using lab::OpKind;
  // Two halves are one whole: reduce and broadcast, reduce_scatter and all_gather.
  const uint64_t cost = of[OpKind::kAllReduce] +
                        std::max(of[OpKind::kReduce], of[OpKind::kBroadcast]) +
                        std::max(of[OpKind::kReduceScatter], ranks * of[OpKind::kAllGather]) +
                        of[OpKind::kSend] / std::max<uint64_t>(ranks - 1, 1);
  constexpr uint64_t kSingleNumbers = 256;  // shares, distances, the padding of a part
  if (cost > bytes + kSingleNumbers)
    lab::grading::stop(fmt::format("{}\nrank {}: {}; the weights are {} bytes", if_too_much, rank,
                                   in_words(sent), bytes));
}

}  // namespace lab03
