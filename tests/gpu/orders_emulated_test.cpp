// On a GPU, threads and blocks run in any order. Under the emulation the order is ours: whichever
// it is, every operation must give the same bits. For the emulation only.
#include <gtest/gtest.h>

#include "tests/emulation/emulation.h"
#include "tests/gpu/bfloat16_attention.h"
#include "tests/gpu/cuda_test.h"
#include "tests/gpu/op_cases.h"

namespace lab::test {
namespace {

template <typename Param>
class InAllOrders : public testing::TestWithParam<Param> {
 protected:
  ~InAllOrders() override { emulation::set_order(emulation::Order::kAscending); }

  /// `run` returns its results on the CPU.
  template <typename Run>
  static void expect_same_bits_of(const Run& run) {
    using emulation::Order;
    const auto results_in = [&](Order order, uint64_t seed = 0) {
      emulation::set_order(order, seed);
      return run();
    };
    const std::vector<Tensor> ascending = results_in(Order::kAscending);
    expect_same_bits(ascending, results_in(Order::kDescending), "threads in descending order");
    expect_same_bits(ascending, results_in(Order::kShuffled, 1), "threads in a shuffled order");
  }
};

using Orders = InAllOrders<OpCase>;

TEST_P(Orders, GiveTheSameBits) {
  expect_same_bits_of([] { return on_cpu(GetParam().run(Device::kCuda)); });
}

INSTANTIATE_TEST_SUITE_P(All, Orders, testing::ValuesIn(all_op_cases()),
                         [](const auto& each) { return each.param.name; });

using AttentionBfloat16Orders = InAllOrders<AttentionShape>;

TEST_P(AttentionBfloat16Orders, GiveTheSameBits) {
  expect_same_bits_of([] {
    return attention_on_gpu(AttentionInputs(GetParam(), {"dense", 0, 0})).all();
  });
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
