// Attention against a float64 reference, and its backward pass against finite differences of that
// reference.
#include <gtest/gtest.h>

#include <cmath>

#include "common/ops/ops.h"
#include "tests/unit/numeric.h"

namespace lab::attention_test {
namespace {

using test::Doubles;
using test::expect_near;
using test::numeric_gradient;
using test::random_tensor;
using test::to_doubles;

constexpr double kTolerance = 2e-6;  // of the largest element; float32 has 1.2e-7

class AttentionTest : public testing::TestWithParam<AttentionShape> {};

/// inputs: q, k, v.
Doubles attention_reference(const AttentionShape& s, const std::vector<Doubles>& inputs) {
  const auto at = [&](size_t which, int64_t row, int64_t heads, int64_t head, int64_t d) {
    return inputs[which][static_cast<size_t>((row * heads + head) * s.head_dim + d)];
  };
  Doubles y;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t i = 0; i < s.queries; ++i)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t kv = h / (s.heads / s.kv_heads);
        const int64_t visible = s.keys - s.queries + i + 1;
        Doubles weights;
        double sum = 0.0;
        for (int64_t j = 0; j < visible; ++j) {
          double score = 0.0;
          for (int64_t d = 0; d < s.head_dim; ++d)
            score +=
                at(0, b * s.queries + i, s.heads, h, d) * at(1, b * s.keys + j, s.kv_heads, kv, d);
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_dim))));
          sum += weights.back();
        }
        for (int64_t d = 0; d < s.head_dim; ++d) {
          double value = 0.0;
          for (int64_t j = 0; j < visible; ++j)
            value +=
                weights[static_cast<size_t>(j)] / sum * at(2, b * s.keys + j, s.kv_heads, kv, d);
          y.push_back(value);
        }
      }
  return y;
}

TEST_P(AttentionTest, ForwardAndBackward) {
  const AttentionShape s = GetParam();
  const int64_t q_width = s.heads * s.head_dim;
  const int64_t kv_width = s.kv_heads * s.head_dim;
  // Queries, keys and values as columns of one matrix, as the model has them.
  const Tensor q =
      random_tensor({s.batch * s.queries, q_width + 3}, 1, 2.0F).columns(1, q_width + 1);
  const Tensor k = random_tensor({s.batch * s.keys, kv_width + 5}, 2, 2.0F).columns(0, kv_width);
  const Tensor v = random_tensor({s.batch * s.keys, kv_width}, 3);
  const Tensor y = Tensor::empty({s.batch * s.queries, q_width});
  const Tensor logsumexp = Tensor::empty({s.batch, s.heads, s.queries});
  attention_forward(s, q, k, v, y, logsumexp);
  const std::vector<Doubles> inputs = {to_doubles(q), to_doubles(k), to_doubles(v)};
  expect_near(y, attention_reference(s, inputs), kTolerance, "y");

  if (s.queries != s.keys) return;  // decoding has no backward
  const Tensor dy = random_tensor({s.batch * s.queries, q_width}, 4);
  const Tensor dqkv = random_tensor({s.batch * s.queries, q_width + 2 * kv_width}, 5);
  attention_backward(s, dy, q, k, v, y, logsumexp, dqkv.columns(0, q_width),
                     dqkv.columns(q_width, q_width + kv_width),
                     dqkv.columns(q_width + kv_width, q_width + 2 * kv_width));
  const auto reference = [&](const std::vector<Doubles>& a) { return attention_reference(s, a); };
  expect_near(dqkv.columns(0, q_width), numeric_gradient(reference, inputs, 0, to_doubles(dy)),
              kTolerance, "dq");
  expect_near(dqkv.columns(q_width, q_width + kv_width),
              numeric_gradient(reference, inputs, 1, to_doubles(dy)), kTolerance, "dk");
  expect_near(dqkv.columns(q_width + kv_width, q_width + 2 * kv_width),
              numeric_gradient(reference, inputs, 2, to_doubles(dy)), kTolerance, "dv");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionTest,
    testing::Values(AttentionShape{1, 1, 1, 1, 1, 2},     // one token sees itself
                    AttentionShape{2, 5, 5, 3, 3, 4},     // multi-head
                    AttentionShape{1, 9, 9, 4, 2, 2},     // grouped queries
                    AttentionShape{1, 6, 6, 3, 1, 4},     // one head of keys for all
                    AttentionShape{0, 4, 4, 2, 2, 2},     // empty batch
                    AttentionShape{1, 1, 7, 4, 2, 6},     // decoding one token
                    AttentionShape{1, 3, 70, 2, 2, 4}));  // decoding several after a long past

// Loops go on to whole vectors of a row: what lies there, even infinities, must not matter.
TEST(Attention, WhatComesLaterChangesNothingBefore) {
  const AttentionShape s{1, 77, 77, 2, 2, 6};
  constexpr int64_t kBefore = 70;
  const Tensor qkv = random_tensor({77, 36}, 1);
  const Tensor dy = random_tensor({77, 12}, 2);
  for (int64_t i = kBefore; i < 77; ++i) dy.rows(i, i + 1).fill(0.0F);
  const auto results = [&] {
    const Tensor y = Tensor::empty({77, 12});
    const Tensor logsumexp = Tensor::empty({1, 2, 77});
    const Tensor gradient = Tensor::empty({77, 36});
    attention_forward(s, qkv.columns(0, 12), qkv.columns(12, 24), qkv.columns(24, 36), y,
                      logsumexp);
    attention_backward(s, dy, qkv.columns(0, 12), qkv.columns(12, 24), qkv.columns(24, 36), y,
                       logsumexp, gradient.columns(0, 12), gradient.columns(12, 24),
                       gradient.columns(24, 36));
    return std::pair(to_doubles(y.rows(0, kBefore)), to_doubles(gradient.rows(0, kBefore)));
  };
  const auto expected = results();
  qkv.rows(kBefore, 77).columns(12, 24).fill(1e30F);  // scores that no float holds once scaled
  EXPECT_EQ(results(), expected);
}

// Longer than a block of queries: finite differences along one random direction.
TEST(Attention, BackwardAcrossBlocks) {
  const AttentionShape s{1, 131, 131, 4, 2, 6};
  const Tensor q = random_tensor({131, 24}, 1, 2.0F);
  const Tensor k = random_tensor({131, 12}, 2, 2.0F);
  const Tensor v = random_tensor({131, 12}, 3);
  const Tensor dy = random_tensor({131, 24}, 4);
  const Tensor y = Tensor::empty({131, 24});
  const Tensor logsumexp = Tensor::empty({1, 4, 131});
  attention_forward(s, q, k, v, y, logsumexp);
  const std::vector<Doubles> inputs = {to_doubles(q), to_doubles(k), to_doubles(v)};
  expect_near(y, attention_reference(s, inputs), kTolerance, "y");

  const Tensor gradients[] = {Tensor::empty({131, 24}), Tensor::empty({131, 12}),
                              Tensor::empty({131, 12})};
  attention_backward(s, dy, q, k, v, y, logsumexp, gradients[0], gradients[1], gradients[2]);
  const Doubles weights = to_doubles(dy);
  const auto objective = [&](const std::vector<Doubles>& a) {
    const Doubles out = attention_reference(s, a);
    double sum = 0.0;
    for (size_t i = 0; i < out.size(); ++i) sum += weights[i] * out[i];
    return sum;
  };
  for (size_t which = 0; which < 3; ++which) {
    const Doubles direction = to_doubles(random_tensor(gradients[which].shape(), 10 + which));
    const Doubles gradient = to_doubles(gradients[which]);
    double predicted = 0.0;
    double magnitude = 0.0;
    std::vector<Doubles> above = inputs;
    std::vector<Doubles> below = inputs;
    for (size_t i = 0; i < direction.size(); ++i) {
      predicted += gradient[i] * direction[i];
      magnitude += std::abs(gradient[i] * direction[i]);
      above[which][i] += 1e-5 * direction[i];
      below[which][i] -= 1e-5 * direction[i];
    }
    const double measured = (objective(above) - objective(below)) / 2e-5;
    EXPECT_NEAR(predicted, measured, 1e-6 * magnitude) << "input " << which;
  }
}

TEST(Attention, LargeScoresStayFinite) {
  const AttentionShape s{1, 4, 4, 1, 1, 2};
  const Tensor q = random_tensor({4, 2}, 1, 1e4F);
  const Tensor k = random_tensor({4, 2}, 2, 1e4F);
  const Tensor v = random_tensor({4, 2}, 3);
  const Tensor y = Tensor::empty({4, 2});
  attention_forward(s, q, k, v, y, Tensor::empty({1, 1, 4}));
  for (float x : y.values()) EXPECT_LE(std::abs(x), 1.0F);
}

}  // namespace
}  // namespace lab::attention_test
