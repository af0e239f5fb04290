// Every operation except attention (attention_test.cpp) against a float64 reference; every backward
// against finite differences of that reference. Shapes include odd ones, length 1 and empty
// batches.
#include "common/ops/ops.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "tests/unit/numeric.h"

namespace lab::ops_test {
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
}  // namespace lab::ops_test
