// What tests on a GPU share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "common/tensor/accelerator.h"
#include "common/tensor/tensor.h"
#include "tests/unit/numeric.h"

namespace lab::test {

/// Skips, with the reason, where there is no GPU.
template <typename Base>
class OnGpu : public Base {
 protected:
  void SetUp() override {
    const AcceleratorSupport support = accelerator_support();
    if (support.count == 0) GTEST_SKIP() << support.problem;
  }
};
using CudaTest = OnGpu<testing::Test>;

/// Skips also where the GPU has no bfloat16. Computes in float32 again at the end, for the tests
/// that follow.
template <typename Base>
class OnBfloat16Gpu : public OnGpu<Base> {
 protected:
  void SetUp() override {
    OnGpu<Base>::SetUp();
    if (!this->IsSkipped() && !accelerator().supports(Precision::kBfloat16))
      GTEST_SKIP() << "bfloat16 needs a GPU of compute capability 8.0 or newer";
  }
  void TearDown() override {
    if (accelerator_support().count > 0) accelerator().set_precision(Precision::kFloat32);
  }
};

inline std::vector<Tensor> on_cpu(std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors) tensor = tensor.to(Device::kCpu);
  return tensors;
}

/// The number of elements whose bits differ.
inline size_t different_bits(const Tensor& a, const Tensor& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.values().size(); ++i)
    count += std::memcmp(&a.values()[i], &b.values()[i], sizeof(float)) != 0;
  return count;
}

inline void expect_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                             const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(different_bits(a[i], b[i]), 0U)
        << "result " << i << " of " << a[i].numel() << " elements, " << what;
}

}  // namespace lab::test
