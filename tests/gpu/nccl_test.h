// What tests of messages between GPUs share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/tensor/tensor.h"
#include "tests/gpu/nccl_ranks.h"

namespace lab::test {

/// Small whole numbers, so that sums are exact in any order.
inline float number(int rank, int64_t i) { return static_cast<float>((rank + 1) * 7 + i % 13); }

inline Tensor numbers(int rank, int64_t count, Device device = Device::kCuda) {
  const Tensor tensor = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i) tensor.data()[i] = number(rank, i);
  return tensor.to(device);
}

inline float sum_of(int ranks, int64_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += number(r, i);
  return sum;
}

template <typename Right>
void expect_all(const Tensor& tensor, const Right& right, const std::string& what) {
  const Tensor values = tensor.to(Device::kCpu);
  for (int64_t i = 0; i < values.numel(); ++i)
    ASSERT_EQ(values.data()[i], right(i)) << what << ", element " << i << " of " << values.numel();
}

inline auto from(int rank) {
  return [rank](int64_t i) { return number(rank, i); };
}

/// Two ranks.
class NcclPair : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_not_run(2); !reason.empty()) GTEST_SKIP() << reason;
  }
};

}  // namespace lab::test
