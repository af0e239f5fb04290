// Attention of bfloat16 in all orders of threads and blocks, and with blocks of either size. For
// the emulation only.
#include <gtest/gtest.h>

#include "tests/cuda/bfloat16_attention.h"
#include "tests/cuda/cuda_test.h"
#include "tests/emulation/emulation.h"

namespace lab::test {
namespace {

using emulation::Order;

class AttentionBfloat16Orders : public testing::TestWithParam<AttentionShape> {
 protected:
  ~AttentionBfloat16Orders() override { emulation::set_order(Order::kAscending); }

  static std::vector<Tensor> results_in(Order order, uint64_t seed = 0) {
    emulation::set_order(order, seed);
    return attention_on_gpu(AttentionInputs(GetParam(), {"dense", 0, 0})).all();
  }
};

TEST_P(AttentionBfloat16Orders, GiveTheSameBits) {
  const std::vector<Tensor> ascending = results_in(Order::kAscending);
  expect_same_bits(ascending, results_in(Order::kDescending), "threads in descending order");
  expect_same_bits(ascending, results_in(Order::kShuffled, 1), "threads in a shuffled order");
}

INSTANTIATE_TEST_SUITE_P(All, AttentionBfloat16Orders,
                         testing::Values(AttentionShape{1, 17, 17, 2, 1, 5},
                                         AttentionShape{1, 70, 70, 2, 1, 48},
                                         AttentionShape{1, 17, 130, 2, 1, 16},
                                         AttentionShape{2, 66, 66, 4, 2, 128}),
                         [](const auto& each) {
                           return name_of(each.param, {"dense", 0, 0});
                         });

}  // namespace
}  // namespace lab::test
