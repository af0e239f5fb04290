// Verdict on task 3: gradients of several tensors, with equal and unequal numbers of targets.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/02_gradient_allreduce/verdict_rank_means.h"

namespace lab02 {
namespace {

using lab::Shape;
using lab::Tensor;
using lab::grading::Expected;
using lab::grading::GroupOptions;
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

Case random_case(const std::vector<Shape>& shapes, const Numbers& targets, uint64_t seed) {
  Case c{.shapes = shapes, .targets = targets, .gradients = {}};
  for (double own_targets : targets) {
    std::vector<Tensor> tensors;
    for (const Shape& shape : shapes) {
      tensors.push_back(lab01::random_tensor(shape, 1.0, ++seed));
      if (own_targets == 0) tensors.back().fill(0.0F);
    }
    c.gradients.push_back(tensors);
  }
  return c;
}

Numbers joined(const std::vector<Tensor>& tensors) {
  Numbers all;
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
void add_missing_tensors(const Case& c, const RankMeans& means, size_t self, Expected& expected) {
  const double share = means.targets[self] / means.all_targets();
  for (size_t k = 0; k < c.shapes.size(); ++k)
    for (double factor : {1.0, share}) {
      Numbers values = expected.values;
      for (size_t i = 0; i < values.size(); ++i)
        if (place(c, i).first == k) values[i] = factor * means.values[self][i];
      expected.mistakes.push_back(
          {values, fmt::format("the gradients: tensor {} of {} is still this rank's own, all "
                               "others are right: it was left out of the flat tensor, or not "
                               "copied back",
                               k + 1, c.shapes.size())});
    }
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

std::vector<Parcel> expect_mean(const Case& c, const GroupOptions& options) {
  RankMeans means{.values = {}, .targets = c.targets};
  for (const auto& tensors : c.gradients) means.values.push_back(joined(tensors));

  std::vector<Parcel> results =
      lab::grading::student_group("average_gradients", inputs_of(c), options);
  std::vector<Numbers> got;
  for (const Parcel& result : results) {
    std::vector<Tensor> tensors;
    for (size_t k = 0; k < c.shapes.size(); ++k)
      tensors.push_back(result.tensor("tensor" + std::to_string(k)));
    got.push_back(joined(tensors));
    if (result.number("fence_broken") != 0)
      lab::grading::stop(
          "memory around the gradient tensors was overwritten: they do not lie one behind the "
          "other, copy each of them");
  }
  expect_on_every_rank(got, [&](size_t rank) {
    Expected expected = means.expected(rank, "the gradients");
    if (c.shapes.size() > 1 && means.all_targets() > 0)
      add_missing_tensors(c, means, rank, expected);
    expected.name = [&c](size_t i) {
      return fmt::format("tensor {} of {}, element {}", place(c, i).first + 1, c.shapes.size(),
                         place(c, i).second);
    };
    return expected;
  });
  expect_same_bits(got, "the averaged gradients");
  return results;
}

void expect_one_flat_message(const Case& c, const std::vector<Parcel>& results) {
  const auto bytes = static_cast<uint64_t>(c.size() + 1) * sizeof(float);
  expect_traffic(
      results,
      {.all_reduces = 2,
       .bytes = bytes,
       .if_too_many = fmt::format(
           "the gradients are right, but they did not travel in one flat tensor: {} tensors should "
           "take one all_reduce, and another one for the number of targets. Every message costs "
           "latency, however small it is",
           c.shapes.size()),
       .if_too_large = "the gradients are right, but more travels than the gradients and the "
                       "number of targets"});
}

TEST(Task3, MeanOverThreeRanks) {
  expect_mean(random_case(kSomeShapes, {7, 7, 7}, 100), over_gloo());
}

TEST(Task3, EveryTargetCountsTheSame) {
  expect_mean(random_case(kSomeShapes, {255, 40, 3}, 200), over_gloo());
}

TEST(Task3, LateMessagesInAnyOrder) {
  expect_mean(random_case(kSomeShapes, {5, 9, 2, 11}, 300), simulated(31));
}

TEST(Task3, OneTensor) {
  const Case c = random_case({{64}}, {3, 8}, 400);
  expect_one_flat_message(c, expect_mean(c, simulated(32)));
}

TEST(Task3, ManyTensorsOneMessage) {
  std::vector<Shape> shapes;
  for (int64_t k = 1; k <= 20; ++k) shapes.push_back({k, 3});
  const Case c = random_case(shapes, {6, 6, 6}, 500);
  expect_one_flat_message(c, expect_mean(c, over_gloo()));
}

TEST(Task3, ARankWithoutTargetsTakesPart) {
  expect_mean(random_case(kSomeShapes, {12, 0, 4}, 600), simulated(34));
}

TEST(Task3, NoTargetsAtAll) { expect_mean(random_case(kSomeShapes, {0, 0}, 700), simulated(33)); }

TEST(Task3, OneRankKeepsItsMean) { expect_mean(random_case(kSomeShapes, {9}, 800), over_gloo()); }

}  // namespace
}  // namespace lab02
