// Element-wise operations, and the sum of squares, against float64.
#include <gtest/gtest.h>

#include <vector>

#include "common/ops/ops.h"
#include "tests/unit/numeric.h"

namespace lab::elementwise_test {
namespace {

using test::Doubles;
using test::expect_near;
using test::random_tensor;
using test::to_doubles;

TEST(Elementwise, ScaleAddAndSumOfSquares) {
  const Tensor x = random_tensor({3, 30011}, 1);
  const Doubles before = to_doubles(x);
  const Tensor y = x.clone();
  add(x, y);
  scale(y, 0.5F);
  expect_near(y, before, 0.0, "(x + x) / 2");
  double expected = 0.0;
  for (double v : before) expected += v * v;
  EXPECT_NEAR(sum_of_squares(x), expected, 1e-12 * expected);
  EXPECT_EQ(sum_of_squares(Tensor::zeros({0})), 0.0);
}

TEST(Elementwise, SumsOfSquaresAreThoseOfEachTensor) {
  const std::vector<Tensor> tensors = {random_tensor({40, 301}, 1), Tensor::zeros({0}),
                                       random_tensor({7}, 2)};
  EXPECT_EQ(sums_of_squares(tensors),
            (std::vector{sum_of_squares(tensors[0]), 0.0, sum_of_squares(tensors[2])}));
  EXPECT_TRUE(sums_of_squares({}).empty());
}

}  // namespace
}  // namespace lab::elementwise_test
