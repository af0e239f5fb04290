// On a GPU, threads and blocks run in any order. Under the emulation the order is ours: whichever
// it is, every operation must give the same bits. For the emulation only.
#include <gtest/gtest.h>

#include "tests/cuda/cuda_test.h"
#include "tests/cuda/op_cases.h"
#include "tests/emulation/emulation.h"

namespace lab::test {
namespace {

using emulation::Order;

class Orders : public testing::TestWithParam<OpCase> {
 protected:
  ~Orders() override { emulation::set_order(Order::kAscending); }

  static std::vector<Tensor> results_in(Order order, uint64_t seed = 0) {
    emulation::set_order(order, seed);
    return on_cpu(GetParam().run(Device::kCuda));
  }
};

TEST_P(Orders, GiveTheSameBits) {
  const std::vector<Tensor> ascending = results_in(Order::kAscending);
  expect_same_bits(ascending, results_in(Order::kDescending), "threads in descending order");
  expect_same_bits(ascending, results_in(Order::kShuffled, 1), "threads in a shuffled order");
}

INSTANTIATE_TEST_SUITE_P(All, Orders, testing::ValuesIn(all_op_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lab::test
