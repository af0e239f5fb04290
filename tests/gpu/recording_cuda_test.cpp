// Recorded work: it does not run while it is recorded, runs when repeated, and keeps its memory.
#include <gtest/gtest.h>

#include <vector>

#include "common/error.h"
#include "common/ops/ops.h"
#include "tests/gpu/cuda_test.h"

namespace lab {
namespace {

using test::random_tensor;

class Recording : public test::CudaTest {
 protected:
  static Tensor vector(std::initializer_list<float> values) {
    return Tensor::from(values, {static_cast<int64_t>(values.size())}).to(Device::kCuda);
  }
  static std::vector<float> values(const Tensor& t) {
    const Tensor here = t.to(Device::kCpu);
    return {here.values().begin(), here.values().end()};
  }
};

TEST_F(Recording, RunsWhenRepeatedAndOnlyThen) {
  const Tensor x = vector({1, 2, 3});
  const Tensor y = vector({10, 20, 30});
  const auto work = accelerator().record([&] { add(x, y); });
  EXPECT_EQ(values(y), (std::vector<float>{10, 20, 30}));
  work->repeat();
  EXPECT_EQ(values(y), (std::vector<float>{11, 22, 33}));
  x.fill(100.0F);  // what it reads is what lies there when it runs
  work->repeat();
  work->repeat();
  EXPECT_EQ(values(y), (std::vector<float>{211, 222, 233}));
}

TEST_F(Recording, GivesTheBitsOfTheWorkItself) {
  const auto layer = [](const Tensor& x, const Tensor& weight, const Tensor& y) {
    const Tensor norm = Tensor::empty({20, 48}, Device::kCuda);  // allocated while recording
    const Tensor inverse_rms = Tensor::empty({20}, Device::kCuda);
    const Tensor ones = Tensor::empty({48}, Device::kCuda);
    ones.fill(1.0F);
    rmsnorm_forward(x, ones, 1e-5F, norm, inverse_rms);
    linear_forward(norm, weight, y);
  };
  const Tensor x = random_tensor({20, 48}, 1).to(Device::kCuda);
  const Tensor weight = random_tensor({33, 48}, 2).to(Device::kCuda);
  const Tensor expected = Tensor::empty({20, 33}, Device::kCuda);
  const Tensor y = Tensor::zeros({20, 33}, Device::kCuda);
  layer(x, weight, expected);
  const auto work = accelerator().record([&] { layer(x, weight, y); });
  work->repeat();
  test::expect_same_bits(test::on_cpu({y}), test::on_cpu({expected}), "recorded or not");
}

TEST_F(Recording, KeepsTheMemoryItAllocated) {
  const Tensor x = vector({1, 2, 3});
  const Tensor y = vector({0, 0, 0});
  const auto work = accelerator().record([&] {
    const Tensor twice = x.clone();
    add(x, twice);
    y.copy_from(twice);
  });
  std::vector<Tensor> others;  // would get the memory of `twice`, were it free
  for (int i = 0; i < 20; ++i) others.push_back(vector({7, 7, 7}));
  work->repeat();
  EXPECT_EQ(values(y), (std::vector<float>{2, 4, 6}));
  for (const Tensor& other : others) EXPECT_EQ(values(other), (std::vector<float>{7, 7, 7}));
}

TEST_F(Recording, RefusesWhatMustNotBeRecordedAndGoesOn) {
  const Tensor x = vector({3, 4});
  const Tensor host = Tensor::zeros({2});
  const std::vector<std::function<void()>> wrong = {
      [&] { accelerator().synchronize(); }, [&] { x.copy_from(host); },
      [&] { host.copy_from(x); },           [&] { sum_of_squares(x); },
      [&] { accelerator().record([] {}); }, [&] { fail("of the work itself"); },
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    EXPECT_THROW(accelerator().record([&] {
      scale(x, 5.0F);
      wrong[i]();
    }),
                 Error)
        << i;
    EXPECT_EQ(values(x), (std::vector<float>{3, 4})) << i;
    EXPECT_EQ(sum_of_squares(x), 25.0) << i;
  }
}

}  // namespace
}  // namespace lab
