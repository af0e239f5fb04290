// Tensors of bfloat16: what they hold, and what only float32 can do.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/error.h"
#include "common/ops/ops.h"
#include "tests/gpu/bfloat16_numbers.h"
#include "tests/gpu/cuda_test.h"

namespace lab::test {
namespace {

class Bfloat16Tensor : public CudaTest {
 protected:
  static Tensor empty(Shape shape) {
    return Tensor::empty(std::move(shape), Device::kCuda, ElementType::kBfloat16);
  }
  static void expect_numbers(const Tensor& actual, const Tensor& expected) {
    expect_same_bits({actual.to(Device::kCpu).clone()}, {expected.clone()}, "as bfloat16");
  }
};

TEST_F(Bfloat16Tensor, TakesTwoBytesAnElement) {
  const Tensor t = empty({3, 5});
  EXPECT_EQ(t.type(), ElementType::kBfloat16);
  EXPECT_EQ(t.bytes(), 30U);
  EXPECT_EQ(static_cast<char*>(t.rows(1, 2).columns(2, 3).address()),
            static_cast<char*>(t.address()) + 14);
}

TEST_F(Bfloat16Tensor, RoundsToNearestAndTiesToEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor t = empty({9});
  t.copy_from(Tensor::from({1.0F, 1.0F + 0x1p-8F, 1.0F + 0x3p-8F, 1.0F + 0x1p-8F + 0x1p-20F, -0.0F,
                            infinity, -1e30F, 0x1p-130F, 0x1.ffp127F},
                           {9}));
  expect_numbers(t, Tensor::from({1.0F, 1.0F, 1.0F + 0x1p-6F, 1.0F + 0x1p-7F, -0.0F, infinity,
                                  rounded_to_bfloat16(-1e30F), 0x1p-130F, infinity},
                                 {9}));
  t.copy_from(Tensor::from({NAN, 0, 0, 0, 0, 0, 0, 0, 0}, {9}));
  EXPECT_TRUE(std::isnan(t.to(Device::kCpu).values()[0]));
}

TEST_F(Bfloat16Tensor, IsCopiedFromAndToAllThatHasItsShape) {
  for (const int64_t columns : {1, 7, 64}) {
    const Tensor numbers = rounded_random({5, columns + 3}, 1);
    const Tensor part = numbers.columns(2, 2 + columns);  // with gaps
    const Tensor dense = empty({5, columns});
    dense.copy_from(part);
    expect_numbers(dense, part);
    const Tensor gaps = empty({5, columns + 8}).columns(4, 4 + columns);
    gaps.copy_from(dense);
    expect_numbers(gaps, part);
    const Tensor on_gpu = Tensor::empty({5, columns}, Device::kCuda);
    on_gpu.copy_from(gaps);
    expect_numbers(on_gpu, part);
    expect_numbers(gaps.clone(), part);
    for (const Tensor& source : {gaps, on_gpu}) {  // through bfloat16 in the CPU's memory
      const Tensor on_cpu = Tensor::empty({5, columns}, Device::kCpu, ElementType::kBfloat16);
      on_cpu.copy_from(source);
      const Tensor back = Tensor::empty({5, columns}, Device::kCuda);
      back.copy_from(on_cpu);
      expect_numbers(back, part);
    }
    EXPECT_EQ(gaps.clone().type(), ElementType::kBfloat16);
    EXPECT_EQ(dense.to(Device::kCuda).address(), dense.address());
    EXPECT_EQ(dense.to(Device::kCpu).type(), ElementType::kFloat32);
  }
  const Tensor nothing = empty({0, 3});
  nothing.copy_from(Tensor::zeros({0, 3}));
  EXPECT_EQ(nothing.to(Device::kCpu).numel(), 0);
}

TEST_F(Bfloat16Tensor, RefusesWhatIsForFloat32) {
  const Tensor t = empty({2, 4});
  const Tensor floats = Tensor::zeros({2, 4}, Device::kCuda);
  const Tensor weight = Tensor::zeros({4}, Device::kCuda);
  const Tensor inverse_rms = Tensor::zeros({2}, Device::kCuda);
  EXPECT_THROW(t.data(), Error);
  EXPECT_THROW(t.fill(0.0F), Error);
  EXPECT_THROW(static_cast<void>(t.values()), Error);
  EXPECT_THROW(add(t, floats), Error);
  EXPECT_THROW(sum_of_squares(t), Error);
  EXPECT_THROW(rmsnorm_forward(t, weight, 1e-5F, t, inverse_rms), Error);
  EXPECT_THROW(swiglu_forward(t, floats.columns(0, 2)), Error);
}

}  // namespace
}  // namespace lab::test
