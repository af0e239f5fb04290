// Task 3: gradients of several tensors, with equal and unequal numbers of targets.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/format.h"
#include "tests/labs/02_gradient_allreduce/means.h"

namespace lab02::task3 {
namespace {

using lab::counted;
using lab::Shape;
using lab::Tensor;
using lab::grading::Expected;
using lab::grading::JobOptions;
using lab::grading::Parcel;

/// As many tensors, of the same shapes, on every rank.
struct Case {
  std::vector<Shape> shapes;
  Numbers targets;                             // per rank
  std::vector<std::vector<Tensor>> gradients;  // per rank

  int64_t size() const {
    return std::accumulate(gradients[0].begin(), gradients[0].end(), int64_t{0},
                           [](int64_t sum, const Tensor& t) { return sum + t.numel(); });
  }
};

const std::vector<Shape> kSomeShapes = {{4, 6}, {5}, {1}, {2, 3, 2}};

Case random_case(const std::vector<Shape>& shapes, const Numbers& targets, uint64_t seed,
                 double scale = 1.0) {
  Case c{.shapes = shapes, .targets = targets, .gradients = {}};
  for (double own_targets : targets) {
    std::vector<Tensor> tensors;
    for (const Shape& shape : shapes) {
      tensors.push_back(lab::grading::draw_tensor(shape, scale, ++seed));
      // Next to so many targets, those of the other ranks would not be seen.
      if (own_targets == 0 || own_targets > 1e6) tensors.back().fill(0.0F);
    }
    c.gradients.push_back(tensors);
  }
  return c;
}

Numbers joined(const std::vector<Tensor>& tensors) {
  int64_t size = 0;
  for (const Tensor& tensor : tensors) size += tensor.numel();
  Numbers all;
  all.reserve(static_cast<size_t>(size));  // there are millions
  for (const Tensor& tensor : tensors)
    all.insert(all.end(), tensor.values().begin(), tensor.values().end());
  return all;
}

/// Tensor and element of place i in the joined numbers.
std::pair<size_t, size_t> place(const Case& c, size_t i) {
  for (size_t k = 0; k < c.shapes.size(); ++k) {
    const auto size = static_cast<size_t>(c.gradients[0][k].numel());
    if (i < size) return {k, i};
    i -= size;
  }
  return {c.shapes.size(), i};
}

/// One tensor keeps the rank's own numbers, scaled or not; all others are right.
void add_missing_tensors(const Case& c, const RankMeans& means, size_t self,
                         std::vector<lab::grading::Mistake>& mistakes) {
  if (c.shapes.size() == 1 || means.all_targets() == 0) return;
  const double share = means.targets[self] / means.all_targets();
  for (size_t k = 0; k < c.shapes.size(); ++k)
    for (double factor : {1.0, share}) {
      Numbers values = means.mean();
      for (size_t i = 0; i < values.size(); ++i)
        if (place(c, i).first == k) values[i] = factor * means.values[self][i];
      mistakes.push_back(
          {values, fmt::format("the gradients: tensor {} of {} is still this rank's own, all "
                               "others are right: it was left out of the flat tensor, or not "
                               "copied back",
                               k + 1, c.shapes.size())});
    }
}

/// The last tensor of the flat one is read first.
void add_backwards(const Case& c, const RankMeans& means,
                   std::vector<lab::grading::Mistake>& mistakes) {
  Numbers values = means.mean();
  std::ranges::reverse(values);
  for (size_t i = 0, k = 0; k < c.shapes.size(); ++k) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(i);
    i += static_cast<size_t>(c.gradients[0][k].numel());
    std::reverse(first, values.begin() + static_cast<std::ptrdiff_t>(i));
  }
  mistakes.push_back({values,
                      "the gradients: the tensors are not copied back in the order in which they "
                      "lie in the flat tensor"});
}

/// Each tensor begins size(0) elements after the one before it in the flat one, not numel().
void add_overlapping(const Case& c, const RankMeans& means,
                     std::vector<lab::grading::Mistake>& mistakes) {
  const auto each_tensor = [&c](const auto& copy) {
    for (size_t k = 0, flat = 0, joined = 0; k < c.shapes.size(); ++k) {
      const auto count = static_cast<size_t>(c.gradients[0][k].numel());
      for (size_t i = 0; i < count; ++i) copy(flat + i, joined + i);
      flat += static_cast<size_t>(c.gradients[0][k].size(0));
      joined += count;
    }
  };
  RankMeans of_flat = means;
  for (size_t r = 0; r < means.ranks(); ++r)
    each_tensor([&](size_t at, size_t i) { of_flat.values[r][at] = means.values[r][i]; });
  const Numbers mean = of_flat.mean();
  Numbers values = mean;
  each_tensor([&](size_t at, size_t i) { values[i] = mean[at]; });
  mistakes.push_back({values,
                      "the gradients: the tensors overlap in the flat tensor: each takes numel() "
                      "elements of it, not size(0)"});
}

std::vector<Parcel> inputs_of(const Case& c) {
  std::vector<Parcel> inputs(c.targets.size());
  for (size_t r = 0; r < inputs.size(); ++r) {
    inputs[r].set("targets", c.targets[r]);
    inputs[r].set("tensors", static_cast<double>(c.shapes.size()));
    for (size_t k = 0; k < c.shapes.size(); ++k)
      inputs[r].set("tensor" + std::to_string(k), c.gradients[r][k]);
  }
  return inputs;
}

void judge(const Case& c, const std::vector<Parcel>& ranks) {
  RankMeans means{.values = {}, .targets = c.targets};
  for (const auto& tensors : c.gradients) means.values.push_back(joined(tensors));
  std::vector<Numbers> got;
  for (const Parcel& result : ranks) {
    std::vector<Tensor> tensors;
    for (size_t k = 0; k < c.shapes.size(); ++k)
      tensors.push_back(result.tensor("tensor" + std::to_string(k)));
    got.push_back(joined(tensors));
    if (result.number("fence_broken") != 0)
      lab::grading::stop(
          "memory around the gradient tensors was overwritten: they are not contiguous in "
          "memory, so copy each of them");
  }
  expect_on_every_rank(got, [&](size_t rank) {
    Expected expected = means.expected(rank, "the gradients");
    expected.mistakes = [&, usual = expected.mistakes, rank] {
      std::vector<lab::grading::Mistake> mistakes = usual();
      add_missing_tensors(c, means, rank, mistakes);
      add_backwards(c, means, mistakes);
      add_overlapping(c, means, mistakes);
      return mistakes;
    };
    expected.name = [&c](size_t i) {
      return fmt::format("tensor {} of {}, element {}", place(c, i).first + 1, c.shapes.size(),
                         place(c, i).second);
    };
    return expected;
  });
  expect_same_bits(got, "the averaged gradients");
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    expect_all_reduces(
        operations_of(ranks[rank]), rank,
        {.bytes = static_cast<uint64_t>(c.size() + 1) * sizeof(float),
         .if_too_many = fmt::format(
             "the gradients are right, but they did not travel in one flat tensor: {} tensors "
             "should take one all_reduce, and another one for the number of targets. Every message "
             "costs latency, however small it is",
             c.shapes.size()),
         .if_too_large = "the gradients are right, but more travels than the gradients and the "
                         "number of targets"});
}

void expect_means(const std::vector<Case>& cases, const JobOptions& options) {
  std::vector<lab::grading::Call> calls;
  for (const Case& c : cases)
    calls.push_back({.scenario = "average_gradients",
                     .inputs = inputs_of(c),
                     .name = fmt::format("{}, targets {}", counted(std::ssize(c.shapes), "tensor"),
                                         fmt::join(c.targets, ", "))});
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

/// Calls with other shapes, other numbers of targets, other gradients; and with the same shapes and
/// other numbers.
std::vector<Case> cases_for(size_t ranks, uint64_t seed) {
  std::vector<Shape> many;
  for (int64_t k = 0; k < 150; ++k) many.push_back({1 + k % 20, 3});
  const std::vector<Shape> with_empty = {{3, 5}, {0}, {2, 2}, {7, 0}, {6}};
  const std::vector<Numbers> targets = {{7, 7, 7, 7},           {255, 40, 3, 12}, {255, 40, 3, 90},
                                        {12, 0, 4, 0},          {1, 2, 1, 1},     {0, 0, 0, 0},
                                        {9, 0, 0, 0},           {0, 0, 0, 5},     {4, 6, 6, 4},
                                        {16'000'000, 3, 21, 9}, {2, 5, 9, 11}};
  const std::vector<std::vector<Shape>> shapes = {
      kSomeShapes, kSomeShapes,      kSomeShapes, {{64}},          many, kSomeShapes, {{8, 8}},
      with_empty,  {{300'000}, {7}}, kSomeShapes, {{5, 2, 3}, {0}}};
  std::vector<Case> cases;
  for (size_t k = 0; k < shapes.size(); ++k) {
    Numbers of_ranks;
    for (size_t r = 0; r < ranks; ++r) of_ranks.push_back(targets[k][r < 4 ? r : 1 + r % 3]);
    cases.push_back(random_case(shapes[k], of_ranks, seed + 100 * k));
  }
  Numbers almost_equal;
  for (size_t r = 0; r < ranks; ++r) almost_equal.push_back(500.0 + static_cast<double>(r % 2));
  cases.push_back(random_case({{0}, {6}, {0}}, almost_equal, seed + 50));
  cases.push_back(random_case(kSomeShapes, cases[0].targets, seed + 60, /*scale=*/1e-15));
  cases.push_back(random_case({{4, 3}, {5}, {1}}, cases[0].targets, seed + 70, /*scale=*/1e9));
  // More targets than 32 bits can count.
  cases.push_back(cases[1]);
  for (double& own_targets : cases.back().targets) own_targets *= 2e7;
  return cases;
}

// Comes first: with equal numbers of targets, several mistakes look alike.
TEST(Task3, EveryTargetCountsTheSame) {
  expect_means({random_case(kSomeShapes, {255, 40, 3}, 200)}, {});
}

TEST(Task3, MeanOverThreeRanks) { expect_means({random_case(kSomeShapes, {7, 7, 7}, 100)}, {}); }

TEST(Task3, LateMessagesInAnyOrder) {
  expect_means(cases_for(5, lab::grading::scenario_seed() + 400), lab::grading::late_messages(31));
}

TEST(Task3, ThreeRanksWithAnyTargetsAndShapes) {
  expect_means(cases_for(3, lab::grading::scenario_seed() + 300), {});
}

TEST(Task3, SeventeenRanks) {
  std::vector<Case> cases = cases_for(17, lab::grading::scenario_seed() + 700);
  std::erase_if(cases, [](const Case& c) { return c.size() > 10'000; });
  expect_means(cases, lab::grading::late_messages(33));
}

/// More than what frameworks send in one piece.
TEST(Task3, SevenMillionGradients) {
  expect_means({random_case({{7'000'000}, {5}}, {3, 2}, 800)}, lab::grading::late_messages(34));
}

TEST(Task3, TwoRanks) {
  expect_means(cases_for(2, lab::grading::scenario_seed() + 500), lab::grading::late_messages(32));
}

TEST(Task3, OneRankKeepsItsMean) {
  expect_means(cases_for(1, lab::grading::scenario_seed() + 600), {});
}

}  // namespace
}  // namespace lab02::task3
