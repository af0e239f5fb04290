#include "common/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/error.h"
#include "common/tensor/vector_math.h"
#include "tests/unit/numeric.h"

namespace lab::tensor_test {
namespace {

using test::to_doubles;

TEST(Tensor, ViewsShareMemory) {
  const Tensor t = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4});
  t.rows(1, 2).columns(2, 4).fill(-1.0F);
  EXPECT_EQ(to_doubles(t), (test::Doubles{0, 1, 2, 3, 4, 5, -1, -1, 8, 9, 10, 11}));
  EXPECT_EQ(to_doubles(t.view({2, 6}).rows(1, 2)), (test::Doubles{-1, -1, 8, 9, 10, 11}));
}

TEST(Tensor, RowsOfThreeDimensionsAreWholeMatrices) {
  const Tensor t = Tensor::zeros({3, 2, 2});
  t.rows(1, 2).fill(5.0F);
  EXPECT_EQ(to_doubles(t), (test::Doubles{0, 0, 0, 0, 5, 5, 5, 5, 0, 0, 0, 0}));
}

TEST(Tensor, ViewKeepsMemoryAlive) {
  Tensor view;
  {
    const Tensor t = Tensor::from({1, 2, 3}, {3});
    view = t.rows(1, 3);
  }
  EXPECT_EQ(to_doubles(view), (test::Doubles{2, 3}));
}

TEST(Tensor, ColumnsAreNotContiguous) {
  const Tensor t = Tensor::zeros({3, 4});
  EXPECT_FALSE(t.columns(0, 2).is_contiguous());
  EXPECT_TRUE(t.rows(0, 2).is_contiguous());
  EXPECT_THROW(t.columns(0, 2).view({6}), Error);
  EXPECT_THROW(t.columns(0, 2).values(), Error);
  EXPECT_TRUE(t.columns(0, 2).clone().is_contiguous());
}

TEST(Tensor, CopyIsAHandleCloneIsNot) {
  const Tensor t = Tensor::zeros({2});
  const Tensor handle = t;
  const Tensor copy = t.clone();
  t.fill(3.0F);
  EXPECT_EQ(handle.values()[0], 3.0F);
  EXPECT_EQ(copy.values()[0], 0.0F);
}

TEST(Tensor, OwnedMemoryIsAligned) {
  for (int64_t n : {1, 63, 1000, 1 << 20})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Tensor::empty({n}).data()) % 256, 0U);
}

TEST(Tensor, EmptyExtents) {
  const Tensor t = Tensor::zeros({0, 5});
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.numel(), 0);
  EXPECT_EQ(t.clone().shape(), (Shape{0, 5}));
}

TEST(Tensor, RefusesNonsense) {
  EXPECT_THROW(Tensor::empty({-1}), Error);
  EXPECT_THROW(Tensor::empty({INT64_MAX, 2}), Error);
  EXPECT_THROW(Tensor::empty({}), Error);
  EXPECT_THROW(Tensor::from({1, 2}, {3}), Error);
  const Tensor t = Tensor::zeros({2, 3});
  EXPECT_THROW(t.rows(1, 3), Error);
  EXPECT_THROW(t.columns(-1, 2), Error);
  EXPECT_THROW(t.view({5}), Error);
  EXPECT_THROW(t.size(2), Error);
  EXPECT_THROW(t.copy_from(Tensor::zeros({3, 2})), Error);
  EXPECT_EQ(t.size(-1), 3);
}

TEST(FastExp, WithinTwoUlpOverTheWholeRange) {
  double worst = 0.0;
  for (double x = -87.3; x < 88.72; x += 1e-3) {
    const auto in = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(in));
    const auto rounded = static_cast<float>(expected);
    const double ulp = std::nextafter(rounded, INFINITY) - rounded;
    worst = std::max(worst, std::abs(fast_exp(in) - expected) / ulp);
  }
  EXPECT_LE(worst, 2.0);
}

TEST(FastExp, Ends) {
  EXPECT_EQ(fast_exp(0.0F), 1.0F);
  EXPECT_EQ(fast_exp(-100.0F), 0.0F);
  EXPECT_EQ(fast_exp(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_GT(fast_exp(1000.0F), 3e38F);
  EXPECT_TRUE(std::isfinite(fast_exp(88.72F)));
  EXPECT_TRUE(std::isnan(fast_exp(NAN)));
}

}  // namespace
}  // namespace lab::tensor_test
