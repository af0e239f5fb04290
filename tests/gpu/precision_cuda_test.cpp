// Matrix products in less than float32: how far they are off, and that they are off at all.
#include <gtest/gtest.h>

#include "common/ops/ops.h"
#include "common/tensor/accelerator.h"
#include "tests/gpu/cuda_test.h"

namespace lab {
namespace {

using test::random_tensor;
using test::to_doubles;

class PrecisionOnGpu : public test::OnBfloat16Gpu<testing::Test> {
 protected:
  /// The largest error of a product, relative to its largest element.
  static double error(Precision precision, int64_t left) {
    accelerator().set_precision(precision);
    const auto inset = [&](const Tensor& all) { return all.columns(left, left + 61); };
    const Tensor x = random_tensor({37, 61 + left}, 1);
    const Tensor w = random_tensor({29, 61 + left}, 2);
    const Tensor expected = random_tensor({37, 29}, 3);
    const Tensor y = expected.to(Device::kCuda);
    linear_forward(inset(x), inset(w), expected, /*accumulate=*/true);
    linear_forward(inset(x.to(Device::kCuda)), inset(w.to(Device::kCuda)), y, /*accumulate=*/true);
    return test::relative_error(to_doubles(y.to(Device::kCpu)), to_doubles(expected));
  }
};

TEST_F(PrecisionOnGpu, Bfloat16RoundsItsInputsAndNothingElse) {
  for (const int64_t left : {0, 3}) {
    EXPECT_GT(error(Precision::kBfloat16, left), 1e-4);
    EXPECT_LT(error(Precision::kBfloat16, left), 1e-2);
  }
}

TEST_F(PrecisionOnGpu, Tf32IsNoWorseThanItsTenBits) { EXPECT_LT(error(Precision::kTf32, 0), 2e-3); }

TEST_F(PrecisionOnGpu, Float32IsFloat32AgainAfterwards) {
  accelerator().set_precision(Precision::kBfloat16);
  EXPECT_LT(error(Precision::kFloat32, 0), 2e-6);
}

TEST_F(PrecisionOnGpu, ProductsOfExactNumbersAreExact) {
  accelerator().set_precision(Precision::kBfloat16);
  // 8 bits of significand hold the integers up to 256.
  const Tensor x = Tensor::from({1, 200, 3, -4}, {2, 2});
  const Tensor w = Tensor::from({5, 6, 7, 129}, {2, 2});
  const Tensor y = Tensor::zeros({2, 2}, Device::kCuda);
  linear_forward(x.to(Device::kCuda), w.to(Device::kCuda), y);
  EXPECT_EQ(to_doubles(y.to(Device::kCpu)), (std::vector<double>{1205, 25807, 15 - 24, 21 - 516}));
}

}  // namespace
}  // namespace lab
