// Every operation on the GPU against the same on the CPU, and against itself: the same bits twice.
#include <gtest/gtest.h>

#include "common/error.h"
#include "common/gpu/cuda_accelerator.h"
#include "common/ops/ops.h"
#include "tests/gpu/cuda_test.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

void expect_agreement(const OpCase& op) {
  const std::vector<Tensor> expected = op.run(Device::kCpu);
  const std::vector<Tensor> actual = on_cpu(op.run(Device::kCuda));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    expect_near(actual[i], to_doubles(expected[i]), op.tolerance,
                op.name + ", result " + std::to_string(i));
  expect_same_bits(actual, on_cpu(op.run(Device::kCuda)), "in two runs");
}

class CudaOps : public OnGpu<testing::TestWithParam<OpCase>> {};

TEST_P(CudaOps, AgreesWithTheCpuAndWithItself) {
  if (!accelerator().supports(GetParam().needs)) GTEST_SKIP() << "this GPU is too old for bfloat16";
  expect_agreement(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, CudaOps, testing::ValuesIn(all_op_cases()),
                         [](const auto& each) { return each.param.name; });

class CudaAttention : public CudaTest {};

// On a large GPU, only many sequences make so many blocks that they need not be small.
TEST_F(CudaAttention, AgreesInLargeBlocks) {
  const int64_t multiprocessors = cuda::cuda_accelerator().context().multiprocessors();
  const int64_t batch = (multiprocessors + 1) / 2;  // of 2 tiles and 2 heads of keys
  for (const int64_t head_dim : {16, 32, 48, 64, 128})
    expect_agreement(attention_case({batch, 65, 65, 4, 2, head_dim}, {"dense", 0, 0}));
}

class CudaOpsBadInput : public CudaTest {};

TEST_F(CudaOpsBadInput, RefusesTensorsOfTwoDevices) {
  const Tensor here = Tensor::zeros({2, 3});
  const Tensor there = Tensor::zeros({2, 3}, Device::kCuda);
  EXPECT_THROW(add(here, there), Error);
}

TEST_F(CudaOpsBadInput, RefusesHeadsThatAreTooWide) {
  const AttentionShape shape{1, 2, 2, 1, 1, 130};
  const Tensor x = Tensor::zeros({2, 130}, Device::kCuda);
  const Tensor logsumexp = Tensor::zeros({1, 1, 2}, Device::kCuda);
  EXPECT_THROW(attention_forward(shape, x, x, x, x, logsumexp), Error);
}

}  // namespace
}  // namespace lab::test
