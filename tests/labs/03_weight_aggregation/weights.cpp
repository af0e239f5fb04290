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

/// "model.norm.weight", and where it begins and ends.
struct Place {
  std::string name;
  size_t begin = 0;
  size_t end = 0;
};

std::vector<Place> tensors_of(const RankWeights& w) {
  std::vector<Place> all;
  for (size_t i = 0; i < w.values[0].size(); ++i) {
    const std::string name = w.name(i).substr(0, w.name(i).find(','));
    if (all.empty() || all.back().name != name) all.push_back({name, i, i});
    all.back().end = i + 1;
  }
  return all;
}

/// Some tensors, or their ends, are still this rank's own, scaled or not; all others are right.
void add_left_out(const RankWeights& w, size_t self, const Numbers& got,
                  std::vector<Mistake>& mistakes) {
  const std::vector<Place> tensors = tensors_of(w);
  for (const double factor : {1.0, w.shares[self]}) {
    Numbers values = w.average();
    std::vector<std::string> left_out;
    for (const Place& tensor : tensors) {
      size_t tail = tensor.end;
      for (; tail > tensor.begin; --tail) {
        const double own = factor * w.values[self][tail - 1];
        if (!(std::abs(got[tail - 1] - own) <= kTolerance)) break;
        values[tail - 1] = own;
      }
      if (tail == tensor.begin)
        left_out.push_back(tensor.name);
      else if (tail + 1 < tensor.end)
        left_out.push_back(fmt::format("{} from element {} on", tensor.name, tail - tensor.begin));
    }
    mistakes.push_back({values, fmt::format("{} of {} tensors are averaged; left out: {}",
                                            tensors.size() - left_out.size(), tensors.size(),
                                            fmt::join(left_out, ", "))});
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
  if (w.ranks() == 1 || got.front() != got.back())
    add([=](size_t r) { return r == self ? 1.0 : 0.0; },
        "the average never reaches the model: the weights are as before. A Tensor is a handle; "
        "assigning to one makes it point elsewhere and changes no number. Write the result where "
        "the weights are: into parameter.value's own memory, on every rank");
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
  for (size_t q = 0; q < w.ranks(); ++q) {
    add([=](size_t r) { return r == q ? 1.0 : 0.0; },
        fmt::format("all ranks have rank {}'s weights: a broadcast copies, it does not average",
                    q));
    add([&, q](size_t r) { return r == q ? 0.0 : share[r]; },
        fmt::format("what rank {} contributes is missing", q));
    if (share[q] < 1)
      add([&, q](size_t r) { return r == q ? 0.0 : share[r] / (1 - share[q]); },
          fmt::format("rank {}'s weights do not count, and the shares of the others are scaled up "
                      "to 1 in their place",
                      q));
  }
  if (w.ranks() > 1 && share[self] < 1) add_left_out(w, self, got[self], all);
  const Numbers magnitude = w.magnitude();
  const bool known = std::ranges::any_of(all, [&](const Mistake& mistake) {
    return within(got[self], mistake.values, magnitude, 100 * kTolerance);
  });
  if (!known && within(got[self], w.average(), magnitude, 0.02))
    all.push_back({got[self],
                   "the average to a few digits only: are the weights rounded on their way, as to "
                   "16 bits?"});
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
  RankWeights magnitudes = *this;
  for (Numbers& own : magnitudes.values)
    for (double& value : own) value = std::abs(value);
  return magnitudes.average();
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
  RankWeights w{.values = {}, .shares = shares, .name = [this](size_t i) {
                  for (const auto& [tensor, shape] : tensors) {
                    const int64_t numel = std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                                          std::multiplies<>());
                    if (i < static_cast<size_t>(numel))
                      return fmt::format("{}, element {}", tensor, i);
                    i -= static_cast<size_t>(numel);
                  }
                  return std::string();
                }};
  for (const std::vector<Tensor>& own : values) {
    Numbers& all = w.values.emplace_back();
    for (const Tensor& tensor : own)
      all.insert(all.end(), tensor.values().begin(), tensor.values().end());
  }
  return w;
}

uint64_t Case::bytes() const {
  uint64_t sum = 0;
  for (const Tensor& tensor : values[0]) sum += tensor.bytes();
  return sum;
}

Case random_case(const std::string& name, const std::vector<Shape>& shapes, const Numbers& shares,
                 uint64_t seed) {
  static const std::vector<std::string> names = {
      "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
      "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight",
      "model.norm.weight"};
  Case c{.name = name, .tensors = {}, .shares = shares, .values = {}};
  for (size_t k = 0; k < shapes.size(); ++k)
    c.tensors.emplace_back(k < names.size()         ? names[k]
                           : k + 1 == shapes.size() ? "lm_head.weight"
                                                    : fmt::format("model.layers.{}.weight", k),
                           shapes[k]);
  for (size_t r = 0; r < shares.size(); ++r) {
    auto& own = c.values.emplace_back();
    for (const Shape& shape : shapes) own.push_back(lab::grading::draw_tensor(shape, 1.0, ++seed));
  }
  return c;
}

std::vector<Case> cases_for(size_t ranks, uint64_t seed) {
  std::vector<Shape> many;
  for (int64_t k = 1; k <= 20; ++k) many.push_back({k, 3});
  struct Kind {
    std::string name;
    std::vector<Shape> shapes;
    Numbers shares;  // of up to five ranks, before they are made to add up to 1
  };
  const std::vector<Kind> kinds = {
      {"equal shares", kSomeShapes, {1, 1, 1, 1, 1}},
      {"unequal shares", kSomeShapes, {4, 1, 3, 2, 5}},
      {"a rank without a share", kSomeShapes, {3, 0, 1, 2, 0}},
      {"a large tensor", {{60'001}, {7}}, {1, 2, 4, 3, 1}},
      {"tensors without elements", {{3, 5}, {0}, {2, 2}, {7, 0}, {6}}, {2, 3, 1, 1, 2}},
      {"tensors of three and four dimensions", {{5, 2, 3}, {2, 3, 2, 4}, {1}}, {5, 1, 1, 2, 3}},
      {"one rank has it all", {{64}}, {7, 0, 0, 0, 0}},
      {"the first shapes again, with other weights and shares", kSomeShapes, {2, 5, 3, 1, 4}},
      {"many tensors", many, {1, 3, 2, 2, 1}},
      {"shapes as often before, and the shares of another call", kSomeShapes, {9, 1, 2, 0, 1}},
  };
  std::vector<Case> cases;
  for (const Kind& kind : kinds) {
    const auto end = kind.shares.begin() + static_cast<std::ptrdiff_t>(ranks);
    cases.push_back(random_case(kind.name, kind.shapes,
                                normalized(Numbers(kind.shares.begin(), end)), seed += 1000));
  }
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
      input.set("tensors", static_cast<double>(c.tensors.size()));
      for (size_t k = 0; k < c.tensors.size(); ++k) {
        input.set_text("name" + std::to_string(k), c.tensors[k].first);
        input.set("tensor" + std::to_string(k), c.values[r][k]);
      }
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
          "memory around the weights was overwritten: the tensors are not one after the other in "
          "memory; handle each of them separately");
}

void expect_one_aggregation(const std::vector<lab::grading::Operation>& sent, uint64_t bytes,
                            size_t rank, size_t ranks, const std::string& if_too_much) {
  std::map<lab::OpKind, uint64_t> of;
  for (const lab::grading::Operation& operation : sent) of[operation.kind] += operation.bytes;
  using lab::OpKind;
  // Two halves are one whole: reduce and broadcast, reduce_scatter and all_gather.
  const uint64_t cost = of[OpKind::kAllReduce] +
                        std::max(of[OpKind::kReduce], of[OpKind::kBroadcast]) +
                        std::max(of[OpKind::kReduceScatter], of[OpKind::kAllGather]) +
                        of[OpKind::kSend] / std::max<uint64_t>(ranks - 1, 1);
  constexpr uint64_t kSingleNumbers = 256;  // shares, distances, the padding of a part
  if (cost > bytes + kSingleNumbers)
    lab::grading::stop(fmt::format("{}\nrank {}: {}; the weights are {} bytes", if_too_much, rank,
                                   in_words(sent), bytes));
}

}  // namespace lab03
