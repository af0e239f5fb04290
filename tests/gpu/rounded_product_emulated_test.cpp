// The product that benchmarks time: linear_forward's numbers, and nothing but the product. What ran
// only the emulation can count.
#include <gtest/gtest.h>

#include "common/gpu/kernels/rounded_product.h"
#include "common/ops/ops.h"
#include "tests/emulation/emulation.h"
#include "tests/gpu/cuda_test.h"

namespace lab::test {
namespace {

class RoundedProduct : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override { accelerator().set_precision(GetParam()); }
  ~RoundedProduct() override { accelerator().set_precision(Precision::kFloat32); }
};

TEST_P(RoundedProduct, IsOneKernelWithTheSameNumbers) {
  const Tensor x = random_tensor({5, 12}, 1).to(Device::kCuda);
  const Tensor weight = random_tensor({7, 12}, 2).to(Device::kCuda);
  const Tensor y = Tensor::zeros({5, 7}, Device::kCuda);
  linear_forward(x, weight, y);
  const Tensor expected = y.to(Device::kCpu);

  const auto multiply = cuda::product_of_rounded(x, weight, y);
  accelerator().synchronize();
  const long before = emulation::statistics().launches;
  constexpr int kTimes = 3;
  for (int i = 0; i < kTimes; ++i) multiply();
  accelerator().synchronize();
  EXPECT_EQ(emulation::statistics().launches, before + kTimes);
  EXPECT_EQ(different_bits(y.to(Device::kCpu), expected), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, RoundedProduct,
                         testing::Values(Precision::kFloat32, Precision::kTf32,
                                         Precision::kBfloat16));

}  // namespace
}  // namespace lab::test
