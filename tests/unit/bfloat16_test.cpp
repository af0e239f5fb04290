// bfloat16 on the CPU: rounding, tensors, operations.
#include "common/tensor/bfloat16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/ops/ops.h"
#include "common/ops/precision.h"
#include "common/run/options/choose_device.h"
#include "common/tensor/parallel.h"
#include "tests/unit/error_of.h"
#include "tests/unit/numeric.h"

namespace lab::bfloat16_test {
namespace {

using test::random_tensor;
using test::to_doubles;

Tensor rounded(const Tensor& x) {
  Tensor result = Tensor::empty(x.shape(), Device::kCpu, ElementType::kBfloat16);
  result.copy_from(x);
  return result;
}

Tensor widened(const Tensor& x) {
  Tensor result = Tensor::empty(x.shape());
  result.copy_from(x);
  return result;
}

/// Numbers that bfloat16 holds exactly.
Tensor random_bfloat16(const Shape& shape, uint64_t seed) {
  return widened(rounded(random_tensor(shape, seed)));
}

constexpr double kRounding = 0x1p-8;  // of a result, relative

void expect_rounded(const Tensor& actual, const Tensor& expected, const char* what) {
  test::expect_near(widened(actual), to_doubles(expected), kRounding, what);
}

TEST(Bfloat16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(static_cast<float>(Bfloat16(1.0F)), 1.0F);
  EXPECT_EQ(static_cast<float>(Bfloat16(1.0F + 0x1p-8F)), 1.0F);              // tie, 1.0 is even
  EXPECT_EQ(static_cast<float>(Bfloat16(1.0F + 0x1.8p-8F)), 1.0F + 0x1p-7F);  // above the tie
  EXPECT_EQ(static_cast<float>(Bfloat16(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F);    // tie, up is even
  EXPECT_EQ(static_cast<float>(Bfloat16(-3.0F)), -3.0F);
  EXPECT_TRUE(std::signbit(static_cast<float>(Bfloat16(-0.0F))));
}

TEST(Bfloat16, EveryNumberSurvivesTheRoundTrip) {
  for (uint32_t high = 0; high < 1U << 16; ++high) {
    const auto value = std::bit_cast<float>(high << 16);
    const float back = Bfloat16(value);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(back)) << high;
    else
      EXPECT_EQ(std::bit_cast<uint32_t>(back), high << 16);
  }
}

TEST(Bfloat16, WhatDoesNotFitIsInfiniteAndNanStaysNan) {
  EXPECT_EQ(static_cast<float>(Bfloat16(std::numeric_limits<float>::max())), INFINITY);
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(std::bit_cast<float>(0xffffffffU)))));
}

TEST(Bfloat16, TensorsAreCopiedInBothDirectionsAlsoBetweenColumns) {
  const Tensor x = random_tensor({70, 1000}, 1);  // more than one block
  for (const auto& [first, last] : {std::pair{0, 1000}, std::pair{3, 997}}) {
    const Tensor part = x.columns(first, last);
    const Tensor back = widened(rounded(part));
    EXPECT_EQ(back.type(), ElementType::kFloat32);
    const test::Doubles expected = to_doubles(part);
    const test::Doubles actual = to_doubles(back);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(actual[i],
                static_cast<double>(static_cast<float>(Bfloat16(static_cast<float>(expected[i])))));
  }
  const Tensor clone = rounded(x).clone();
  EXPECT_EQ(clone.type(), ElementType::kBfloat16);
  EXPECT_EQ(clone.bytes(), 2U * 70 * 1000);
  EXPECT_EQ(to_doubles(widened(clone)), to_doubles(widened(rounded(x))));
}

TEST(Bfloat16, AFloatPointerToItIsRefused) {
  const Tensor x = rounded(random_tensor({2, 3}, 1));
  EXPECT_NE(error_of([&] { x.data(); }).find("holds bfloat16 where float32 is needed"),
            std::string::npos);
}

struct Product {
  int64_t n, in, out;
};

class Bfloat16Products : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_has_bfloat16()) GTEST_SKIP() << "this processor has no bfloat16";
  }
};

class Bfloat16Linear : public Bfloat16Products, public testing::WithParamInterface<Product> {};

TEST_P(Bfloat16Linear, EqualsFloat32OnTheRoundedNumbers) {
  const auto [n, in, out] = GetParam();
  const Tensor x = random_bfloat16({n, in}, 1);
  const Tensor w = random_bfloat16({out, in}, 2);
  const Tensor dy = random_bfloat16({n, out}, 3);
  for (const bool accumulate : {false, true}) {
    const Tensor expected = random_tensor({n, out}, 4);
    const Tensor sum = expected.clone();
    const Tensor short_result = rounded(expected);
    const Tensor expected_short = widened(short_result);
    linear_forward(x, w, expected, accumulate);
    linear_forward(rounded(x), rounded(w), sum, accumulate);
    test::expect_near(sum, to_doubles(expected), 1e-5, "float32 y");
    linear_forward(x, w, expected_short, accumulate);
    linear_forward(rounded(x), rounded(w), short_result, accumulate);
    expect_rounded(short_result, expected_short, "bfloat16 y");
  }
  const Tensor expected_dx = Tensor::empty({n, in});
  const Tensor dx = rounded(random_tensor({n, in}, 5));
  linear_backward_input(dy, w, expected_dx);
  linear_backward_input(rounded(dy), rounded(w), dx);
  expect_rounded(dx, expected_dx, "dx");

  const Tensor expected_dw = random_tensor({out, in}, 6);
  const Tensor dw = expected_dw.clone();
  linear_backward_weight(dy, x, expected_dw);
  linear_backward_weight(rounded(dy), rounded(x), dw);
  test::expect_near(dw, to_doubles(expected_dw), 1e-5, "dweight");
}

// 2048 columns of bfloat16 are 4 KiB: rows whose columns compete for cache lines.
INSTANTIATE_TEST_SUITE_P(Sizes, Bfloat16Linear,
                         testing::Values(Product{1, 1, 1}, Product{3, 5, 7}, Product{37, 61, 29},
                                         Product{128, 288, 96}, Product{300, 33, 2048},
                                         Product{0, 4, 4}));

// A product that was computed before is found again by its shape: its matrices are others by then,
// and the number of threads may be.
TEST_F(Bfloat16Products, OfOneShapeTakeTheirOwnMatricesWithAnyNumberOfThreads) {
  const auto products = [](uint64_t seed) {
    const Tensor x = rounded(random_tensor({70, 50}, seed));
    const Tensor w = rounded(random_tensor({90, 50}, seed + 1));
    const Tensor y = Tensor::empty({70, 90});
    linear_forward(x, w, y);
    return to_doubles(y);
  };
  const test::Doubles first = products(1);
  const test::Doubles second = products(2);
  EXPECT_NE(first, second);
  for (const int threads : {1, 3, 2, 0}) {
    set_thread_count(threads);
    EXPECT_EQ(products(2), second) << threads << " threads";
    EXPECT_EQ(products(1), first) << threads << " threads";
  }
  // Inside of a parallel loop each thread computes its own.
  std::vector<test::Doubles> all(8);
  parallel_for(0, 8, [&](int64_t i) { all[static_cast<size_t>(i)] = products(1 + i % 2); });
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i % 2 == 0 ? first : second);
}

TEST_F(Bfloat16Products, AreComputedAlsoWhenThereAreMoreShapesThanAreKept) {
  const Tensor w = rounded(random_tensor({3, 2}, 1));
  for (int64_t rows = 1; rows <= 1100; ++rows) {
    const Tensor x = rounded(Tensor::zeros({rows, 2}));
    const Tensor y = random_tensor({rows, 3}, 2);
    linear_forward(x, w, y);
    ASSERT_EQ(to_doubles(y), test::Doubles(static_cast<size_t>(rows * 3), 0.0)) << rows;
  }
}

TEST(Bfloat16Operations, NormRotationAndSwigluRoundTheirResultsOnce) {
  const Tensor x = random_tensor({5, 24}, 1);
  const Tensor weight = random_tensor({24}, 2);
  const Tensor inverse = Tensor::empty({5});
  const Tensor y = Tensor::empty({5, 24});
  const Tensor short_y = rounded(y);
  rmsnorm_forward(x, weight, 1e-6F, y, inverse);
  rmsnorm_forward(x, weight, 1e-6F, short_y, inverse);
  EXPECT_EQ(to_doubles(widened(short_y)), to_doubles(widened(rounded(y))));

  const Tensor dy = random_bfloat16({5, 24}, 3);
  const Tensor dx[] = {Tensor::zeros({5, 24}), Tensor::zeros({5, 24})};
  const Tensor dweight[] = {Tensor::zeros({24}), Tensor::zeros({24})};
  rmsnorm_backward(dy, x, weight, inverse, dx[0], dweight[0]);
  rmsnorm_backward(rounded(dy), x, weight, inverse, dx[1], dweight[1]);
  test::expect_near(dx[1], to_doubles(dx[0]), 1e-6, "dx");
  test::expect_near(dweight[1], to_doubles(dweight[0]), 1e-6, "dweight");

  const Tensor turned = random_bfloat16({5, 24}, 4);
  const Tensor short_turned = rounded(turned);
  const Tensor angles = rope_table(5, 12, 10000.0F);
  rope(turned, angles, 5, 0, Rotation::kForward);
  rope(short_turned, angles, 5, 0, Rotation::kForward);
  expect_rounded(short_turned, turned, "rope");

  const Tensor gate_up = random_bfloat16({5, 48}, 5);
  const Tensor short_gate_up = rounded(gate_up);
  swiglu_forward(gate_up, y);
  swiglu_forward(short_gate_up, short_y);
  expect_rounded(short_y, y, "swiglu");
  y.copy_from(dy);
  short_y.copy_from(dy);
  swiglu_backward(gate_up, y);
  swiglu_backward(short_gate_up, short_y);
  expect_rounded(short_gate_up, gate_up, "gradient of swiglu's input");
  expect_rounded(short_y, y, "swiglu again");
}

TEST(Bfloat16Operations, MixedTypesAreRefused) {
  const Tensor x = random_tensor({2, 4}, 1);
  const Tensor short_x = rounded(x);
  const Tensor y = Tensor::zeros({2, 2});
  EXPECT_EQ(error_of([&] { linear_forward(x, short_x, y); }),
            "the factors of a linear layer on the CPU: some tensors are float32 and some bfloat16");
  EXPECT_EQ(error_of([&] { swiglu_forward(short_x, y); }),
            "swiglu on the CPU: some tensors are float32 and some bfloat16");
}

/// The same numbers inside of a matrix with more columns.
Tensor columns_of_wider(const Tensor& x) {
  const int64_t columns = x.size(1);
  const Tensor wider = rounded(random_tensor({x.size(0), columns + 5}, 9));
  const Tensor middle = wider.columns(3, 3 + columns);
  middle.copy_from(x);
  return middle;
}

class Bfloat16Attention : public testing::TestWithParam<AttentionShape> {};

TEST_P(Bfloat16Attention, IsNearFloat32) {
  if (!cpu_has_bfloat16()) GTEST_SKIP() << "this processor has no bfloat16";
  const AttentionShape s = GetParam();
  const Shape wide{s.batch * s.queries, s.heads * s.head_dim};
  const Shape narrow{s.batch * s.keys, s.kv_heads * s.head_dim};
  const Tensor q = random_bfloat16(wide, 1);
  const Tensor k = random_bfloat16(narrow, 2);
  const Tensor v = random_bfloat16(narrow, 3);
  const Tensor dy = random_bfloat16(wide, 4);
  const Tensor y = Tensor::empty(wide);
  const Tensor lse = Tensor::empty({s.batch, s.heads, s.queries});
  attention_forward(s, q, k, v, y, lse);
  const Tensor short_y = rounded(y);
  const Tensor short_lse = lse.clone();
  // Columns of wider matrices, as in the model: a head's rows are far apart.
  const Tensor short_q = columns_of_wider(rounded(q));
  const Tensor short_k = columns_of_wider(rounded(k));
  const Tensor short_v = columns_of_wider(rounded(v));
  attention_forward(s, short_q, short_k, short_v, short_y, short_lse);
  test::expect_near(short_lse, to_doubles(lse), 1e-5, "logsumexp");
  test::expect_near(widened(short_y), to_doubles(y), 2 * kRounding, "y");

  if (s.queries != s.keys) return;  // decoding has no backward pass
  const Tensor dq = Tensor::zeros(wide);
  const Tensor dk = Tensor::zeros(narrow);
  const Tensor dv = Tensor::zeros(narrow);
  const Tensor short_dq = columns_of_wider(rounded(dq));
  const Tensor short_dk = columns_of_wider(rounded(dk));
  const Tensor short_dv = columns_of_wider(rounded(dv));
  attention_backward(s, dy, q, k, v, y, lse, dq, dk, dv);
  attention_backward(s, rounded(dy), short_q, short_k, short_v, short_y, lse, short_dq, short_dk,
                     short_dv);
  test::expect_near(widened(short_dq), to_doubles(dq), 4 * kRounding, "dq");
  test::expect_near(widened(short_dk), to_doubles(dk), 4 * kRounding, "dk");
  test::expect_near(widened(short_dv), to_doubles(dv), 4 * kRounding, "dv");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Bfloat16Attention,
    testing::Values(AttentionShape{1, 1, 1, 1, 1, 2}, AttentionShape{2, 19, 19, 4, 2, 6},
                    AttentionShape{1, 130, 130, 2, 1, 48}, AttentionShape{3, 64, 64, 6, 6, 16},
                    AttentionShape{0, 4, 4, 2, 2, 2}, AttentionShape{2, 257, 257, 6, 3, 34},
                    AttentionShape{1, 96, 96, 3, 1, 64}, AttentionShape{2, 1, 77, 4, 2, 6},
                    AttentionShape{1, 67, 200, 2, 2, 48}));

TEST(Bfloat16OfPrograms, IsRefusedWhereItWouldBeSlower) {
  std::stringstream cpuinfo;
  cpuinfo << std::ifstream("/proc/cpuinfo").rdbuf();
  const auto says = [&](const char* word) { return contains(cpuinfo.str(), word); };
  const std::string refusal = error_of([] { choose_device("cpu", "bfloat16"); });
  set_precision(Device::kCpu, Precision::kFloat32);
  if (says("amx_bf16"))
    EXPECT_EQ(refusal, "");
  else if (!says("avx512_bf16"))
    EXPECT_TRUE(contains(refusal, "needs a processor with instructions for it")) << refusal;
  else if (says("GenuineIntel"))
    EXPECT_TRUE(contains(refusal, "slower than float32")) << refusal;
  else
    EXPECT_EQ(refusal, "");
}

}  // namespace
}  // namespace lab::bfloat16_test
