// Every operation against a float64 reference; every backward against finite differences of that
// reference. Shapes include odd ones, length 1 and empty batches.
#include "common/ops/ops.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/unit/numeric.h"

namespace lab {
namespace {

using test::Doubles;
using test::expect_near;
using test::numeric_gradient;
using test::plus;
using test::random_tensor;
using test::to_doubles;

constexpr double kTolerance = 2e-6;  // of the largest element; float32 has 1.2e-7

// --- Linear

struct LinearSize {
  int64_t n, in, out;
};

class LinearTest : public testing::TestWithParam<LinearSize> {};

TEST_P(LinearTest, ForwardAndBackward) {
  const auto [n, in, out] = GetParam();
  const Tensor x = random_tensor({n, in}, 1);
  const Tensor w = random_tensor({out, in}, 2);
  const Tensor dy = random_tensor({n, out}, 3);
  const int64_t in_size = in;
  const int64_t out_size = out;
  const auto reference = [=](const std::vector<Doubles>& a) {
    Doubles y;
    for (size_t r = 0; r < a[0].size() / static_cast<size_t>(in_size); ++r)
      for (int64_t o = 0; o < out_size; ++o) {
        double sum = 0.0;
        for (int64_t i = 0; i < in_size; ++i)
          sum += a[0][r * static_cast<size_t>(in_size) + static_cast<size_t>(i)] *
                 a[1][static_cast<size_t>(o * in_size + i)];
        y.push_back(sum);
      }
    return y;
  };
  const std::vector<Doubles> inputs = {to_doubles(x), to_doubles(w)};

  const Tensor y = random_tensor({n, out}, 4);  // must be overwritten
  linear_forward(x, w, y);
  expect_near(y, reference(inputs), kTolerance, "y");
  const Tensor more = random_tensor({n, out}, 5);
  const Doubles before = to_doubles(more);
  linear_forward(x, w, more, /*accumulate=*/true);
  expect_near(more, plus(before, reference(inputs)), kTolerance, "y, accumulated");

  const Tensor dx = random_tensor({n, in}, 6);
  linear_backward_input(dy, w, dx);
  expect_near(dx, numeric_gradient(reference, inputs, 0, to_doubles(dy)), kTolerance, "dx");
  const Tensor dw = random_tensor({out, in}, 7);
  const Doubles dw_before = to_doubles(dw);
  linear_backward_weight(dy, x, dw);
  expect_near(dw, plus(dw_before, numeric_gradient(reference, inputs, 1, to_doubles(dy))),
              kTolerance, "dw must be added to");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearTest,
                         testing::Values(LinearSize{1, 1, 1}, LinearSize{3, 5, 7},
                                         LinearSize{17, 8, 33}, LinearSize{0, 4, 3}));

TEST(Linear, ReadsAndWritesColumnsOfAWiderMatrix) {
  const Tensor wide = random_tensor({4, 10}, 1);
  const Tensor w = random_tensor({3, 5}, 2);
  const Tensor expected = Tensor::empty({4, 3});
  linear_forward(wide.columns(2, 7).clone(), w, expected);
  const Tensor out = Tensor::zeros({4, 9});
  linear_forward(wide.columns(2, 7), w, out.columns(4, 7));
  expect_near(out.columns(4, 7), to_doubles(expected), 0.0, "same bits as from a dense matrix");
  expect_near(out.columns(0, 4), Doubles(16, 0.0), 0.0, "columns beside stay untouched");
  expect_near(out.columns(7, 9), Doubles(8, 0.0), 0.0, "columns beside stay untouched");
}

TEST(Linear, WeightGradientOfWideRows) {  // taken in parts: their columns compete for the cache
  const Tensor dy = random_tensor({300, 1024}, 1);
  const Tensor x = random_tensor({300, 3}, 2);
  const Tensor dw = random_tensor({1024, 3}, 3);
  Doubles expected = to_doubles(dw);
  for (size_t n = 0; n < 300; ++n)
    for (size_t o = 0; o < 1024; ++o)
      for (size_t i = 0; i < 3; ++i)
        expected[o * 3 + i] +=
            static_cast<double>(dy.values()[n * 1024 + o]) * x.values()[n * 3 + i];
  linear_backward_weight(dy, x, dw);
  expect_near(dw, expected, kTolerance, "dw");
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_THROW(linear_forward(x, Tensor::zeros({4, 2}), Tensor::zeros({2, 4})), Error);
  EXPECT_THROW(linear_forward(x, Tensor::zeros({4, 3}), Tensor::zeros({3, 4})), Error);
}

// --- Embedding

TEST(Embedding, GathersAndAddsRowsAndIgnoresPadding) {
  const Tensor table = random_tensor({5, 67}, 1);
  const std::vector<int32_t> tokens = {4, 0, -1, 4};
  const Tensor y = random_tensor({4, 67}, 2);
  embedding_forward(tokens, table, y);
  expect_near(y.rows(0, 1), to_doubles(table.rows(4, 5)), 0.0, "row of token 4");
  expect_near(y.rows(1, 2), to_doubles(table.rows(0, 1)), 0.0, "row of token 0");
  expect_near(y.rows(2, 3), Doubles(67, 0.0), 0.0, "padding");

  const Tensor dy = random_tensor({4, 67}, 3);
  const Tensor dtable = Tensor::zeros({5, 67});
  embedding_backward(tokens, dy, dtable);
  expect_near(dtable.rows(4, 5), plus(to_doubles(dy.rows(0, 1)), to_doubles(dy.rows(3, 4))), 1e-7,
              "a token that occurs twice");
  expect_near(dtable.rows(0, 1), to_doubles(dy.rows(1, 2)), 0.0, "a token that occurs once");
  expect_near(dtable.rows(1, 4), Doubles(3 * 67, 0.0), 0.0, "tokens that do not occur");
}

TEST(Embedding, RefusesTokensOutsideTheTable) {
  const Tensor table = Tensor::zeros({5, 2});
  EXPECT_THROW(embedding_forward(std::vector<int32_t>{5}, table, Tensor::zeros({1, 2})), Error);
  EXPECT_THROW(embedding_forward(std::vector<int32_t>{-2}, table, Tensor::zeros({1, 2})), Error);
}

// --- RMSNorm

class RmsNormTest : public testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(RmsNormTest, ForwardAndBackward) {
  const auto [n, c] = GetParam();
  constexpr float kEpsilon = 1e-3F;  // large enough to matter
  const Tensor x = random_tensor({n, c}, 1);
  const Tensor weight = random_tensor({c}, 2);
  const Tensor dy = random_tensor({n, c}, 3);
  const auto columns = static_cast<size_t>(c);
  const auto reference = [=](const std::vector<Doubles>& a) {
    Doubles y(a[0].size());
    for (size_t first = 0; first < y.size(); first += columns) {
      double squares = 0.0;
      for (size_t i = 0; i < columns; ++i) squares += a[0][first + i] * a[0][first + i];
      const double rms = std::sqrt(squares / static_cast<double>(columns) + kEpsilon);
      for (size_t i = 0; i < columns; ++i) y[first + i] = a[0][first + i] / rms * a[1][i];
    }
    return y;
  };
  const std::vector<Doubles> inputs = {to_doubles(x), to_doubles(weight)};

  const Tensor y = Tensor::empty({n, c});
  const Tensor inverse_rms = Tensor::empty({n});
  rmsnorm_forward(x, weight, kEpsilon, y, inverse_rms);
  expect_near(y, reference(inputs), kTolerance, "y");
  const Tensor again = Tensor::empty({n, c});
  rmsnorm_apply(x, weight, inverse_rms, again);
  expect_near(again, to_doubles(y), 0.0, "rmsnorm_apply gives the same bits");

  const Tensor dx = random_tensor({n, c}, 4);
  const Tensor dweight = random_tensor({c}, 5);
  const Doubles dx_before = to_doubles(dx);
  const Doubles dweight_before = to_doubles(dweight);
  rmsnorm_backward(dy, x, weight, inverse_rms, dx, dweight);
  expect_near(dx, plus(dx_before, numeric_gradient(reference, inputs, 0, to_doubles(dy))),
              kTolerance, "dx");
  expect_near(dweight, plus(dweight_before, numeric_gradient(reference, inputs, 1, to_doubles(dy))),
              kTolerance, "dweight");
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsNormTest,
                         testing::Values(std::pair{1, 1}, std::pair{3, 7}, std::pair{5, 130},
                                         std::pair{0, 8}));

TEST(RmsNorm, RowOfZerosStaysFinite) {
  const Tensor x = Tensor::zeros({1, 8});
  const Tensor weight = random_tensor({8}, 1);
  const Tensor y = Tensor::empty({1, 8});
  rmsnorm_forward(x, weight, 1e-6F, y, Tensor::empty({1}));
  expect_near(y, Doubles(8, 0.0), 0.0, "0 / sqrt(eps) = 0");
}

// --- Rotary embedding

/// Straight from the definition: pair (i, i + D/2) turned by position / theta^(2i/D).
Doubles rope_reference(const Doubles& x, int64_t width, int64_t head_dim, int64_t length,
                       int64_t first_position, double theta) {
  Doubles y = x;
  const int64_t half = head_dim / 2;
  for (int64_t n = 0; n * width < static_cast<int64_t>(x.size()); ++n)
    for (int64_t h = 0; h < width / head_dim; ++h)
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(first_position + n % length) *
            std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        const auto low = static_cast<size_t>(n * width + h * head_dim + i);
        const auto high = low + static_cast<size_t>(half);
        y[low] = x[low] * std::cos(angle) - x[high] * std::sin(angle);
        y[high] = x[high] * std::cos(angle) + x[low] * std::sin(angle);
      }
  return y;
}

TEST(Rope, RotatesPairsByPositionAndBackAgain) {
  const int64_t length = 5;
  const Tensor table = rope_table(9, 6, 100.0F);
  const Tensor x = random_tensor({2 * length, 3 * 6}, 1);
  const Doubles original = to_doubles(x);
  rope(x, table, length, 3, Rotation::kForward);
  expect_near(x, rope_reference(original, 18, 6, length, 3, 100.0), kTolerance, "rotated");
  rope(x, table, length, 3, Rotation::kBackward);
  expect_near(x, original, kTolerance, "a rotation's gradient is the inverse rotation");
}

TEST(Rope, RefusesPositionsBehindTheTable) {
  const Tensor table = rope_table(4, 2, 10.0F);
  EXPECT_THROW(rope(Tensor::zeros({2, 2}), table, 2, 3, Rotation::kForward), Error);
}

// --- Attention

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

// Longer than a block of queries: finite differences along one random direction.
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

// --- SwiGLU

TEST(SwiGlu, ForwardAndBackward) {
  for (const auto& [n, h] : {std::pair<int64_t, int64_t>{1, 1}, {3, 37}, {0, 5}}) {
    const Tensor gate_up = random_tensor({n, 2 * h}, 1, 4.0F);
    const Tensor dy = random_tensor({n, h}, 2);
    const auto width = static_cast<size_t>(h);
    const auto reference = [=](const std::vector<Doubles>& a) {
      Doubles y;
      for (size_t first = 0; first < a[0].size(); first += 2 * width)
        for (size_t i = 0; i < width; ++i) {
          const double gate = a[0][first + i];
          y.push_back(gate / (1.0 + std::exp(-gate)) * a[0][first + width + i]);
        }
      return y;
    };
    const std::vector<Doubles> inputs = {to_doubles(gate_up)};
    const Tensor y = Tensor::empty({n, h});
    swiglu_forward(gate_up, y);
    expect_near(y, reference(inputs), kTolerance, "y");
    const Doubles expected = numeric_gradient(reference, inputs, 0, to_doubles(dy));
    swiglu_backward(gate_up, dy);
    expect_near(gate_up, expected, kTolerance, "gradient, in place");
    expect_near(dy, reference(inputs), kTolerance, "y again, in place");
  }
}

TEST(SwiGlu, ExtremeGatesStayFinite) {
  const Tensor gate_up = Tensor::from({-200.0F, 200.0F, 1.0F, 1.0F}, {1, 4});
  const Tensor y = Tensor::empty({1, 2});
  swiglu_forward(gate_up, y);
  EXPECT_NEAR(y.values()[0], 0.0F, 1e-30F);
  EXPECT_EQ(y.values()[1], 200.0F);
}

}  // namespace
}  // namespace lab
