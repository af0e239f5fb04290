// What no machine with a healthy GPU shows: no driver, an old driver, a GPU that is nearly full;
// and that a step which repeats itself allocates nothing. For the emulation only.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/error.h"
#include "common/gpu/cuda/caching_allocator.h"
#include "common/gpu/cuda_accelerator.h"
#include "common/tensor/accelerator.h"
#include "tests/emulation/emulation.h"
#include "tests/gpu/cuda_test.h"
#include "tests/gpu/op_cases.h"

namespace lab {
namespace {

class AcceleratorEmulated : public testing::Test {
 protected:
  void SetUp() override { accelerator().synchronize(); }
  ~AcceleratorEmulated() override { emulation::reset(); }

  static void expect_problem(const std::string& part) {
    const AcceleratorSupport support = accelerator_support();
    EXPECT_EQ(support.count, 0);
    EXPECT_NE(support.problem.find(part), std::string::npos) << support.problem;
    EXPECT_NE(support.problem.find("--device cpu"), std::string::npos) << support.problem;
  }
};

TEST_F(AcceleratorEmulated, SaysThatThereIsNoGpu) {
  emulation::set_device_count(0);
  expect_problem("nvidia-smi");
}

TEST_F(AcceleratorEmulated, SaysThatThereIsNoDriver) {
  emulation::set_driver(emulation::Driver::kMissing);
  expect_problem("driver");
}

TEST_F(AcceleratorEmulated, SaysThatTheDriverIsTooOld) {
  emulation::set_driver(emulation::Driver::kTooOld);
  expect_problem("this program was built with 13.0");
}

TEST_F(AcceleratorEmulated, SaysThatItWasBuiltForOtherGpus) {
  emulation::set_compute_capability(7, 5);
  emulation::set_has_code(false);
  try {
    detail::open_accelerator(0);
    ADD_FAILURE() << "opened";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("compute capability 7.5"), std::string::npos) << message;
    EXPECT_NE(message.find("holds no code for this GPU"), std::string::npos) << message;
  }
}

TEST_F(AcceleratorEmulated, CountsGpus) {
  emulation::set_device_count(3);
  EXPECT_EQ(accelerator_support().count, 3);
  EXPECT_EQ(accelerator_support().problem, "");
}

TEST_F(AcceleratorEmulated, GivesKeptMemoryBackBeforeItGivesUp) {
  constexpr size_t kMiB = size_t{1} << 20;
  cuda::CachingAllocator allocator;
  const size_t kept = cuda::cuda_accelerator().context().memory().bytes_kept();
  const size_t lent = (size_t{4} << 30) - (accelerator().free_bytes() - kept);
  emulation::set_total_memory(lent + 100 * kMiB);
  allocator.release(allocator.allocate(60 * kMiB));
  void* memory = allocator.allocate(80 * kMiB);
  EXPECT_EQ(allocator.bytes_kept(), 0U);
  EXPECT_THROW(allocator.allocate(80 * kMiB), Error);
  allocator.release(memory);
}

TEST_F(AcceleratorEmulated, AllocatesNothingOnceAStepWasMade) {
  if (std::getenv("LAB_CUDA_CACHE") != nullptr) GTEST_SKIP() << "LAB_CUDA_CACHE is set";
  for (const auto& each : test::all_op_cases()) {
    each.run(Device::kCuda);
    const long before = emulation::statistics().allocations;
    each.run(Device::kCuda);
    EXPECT_EQ(emulation::statistics().allocations, before) << each.name;
  }
}

}  // namespace
}  // namespace lab
