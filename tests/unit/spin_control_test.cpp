#include "common/tensor/spin_control.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/tensor/parallel.h"

namespace lab::spin_control_test {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// Threads that never sleep, all on the core of the one that makes them.
class ThreadsOfOneCore {
 public:
  explicit ThreadsOfOneCore(int count) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, core] {
        sched_setaffinity(0, sizeof core, &core);
        while (!ends_) turns_.fetch_add(1, std::memory_order_relaxed);
      });
  }
  ~ThreadsOfOneCore() { ends_ = true; }

 private:
  std::atomic<bool> ends_ = false;
  std::atomic<int64_t> turns_ = 0;
  std::vector<std::jthread> threads_;  // they end before the rest
};

/// Throws if it does not become true soon enough for any machine. In between this thread sleeps: so
/// it does not wait for a core, however busy the machine is.
void wait_until(const auto& condition) {
  const auto deadline = steady_clock::now() + 60s;
  while (!condition()) {
    require(steady_clock::now() < deadline, "waited for a minute");
    std::this_thread::sleep_for(50ms);
  }
}

int threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST(CoreWaits, OfThreeThreadsOnOneCoreOneWaitsForTwoThirdsOfTheTime) {
  if (!std::filesystem::exists("/proc/self/schedstat"))
    GTEST_SKIP() << "this kernel does not count how long threads wait";
  const ThreadsOfOneCore three(3);
  CoreWaits waits;
  const auto begin = steady_clock::now();
  wait_until([&] { return steady_clock::now() - begin > 400ms; });
  const std::chrono::nanoseconds longest = waits.longest();
  const auto elapsed = steady_clock::now() - begin;
  EXPECT_GT(longest, 0.5 * elapsed);
  EXPECT_LT(longest, 1.1 * elapsed) << "a wait counts when it ends, so some of it is older";
}

class SpinControlTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) unsetenv(name);
    omp_set_num_threads(2);
  }
  void TearDown() override { set_thread_count(0); }
};

TEST_F(SpinControlTest, HoldsMoreThreadsThanCoresWhileCoresAreScarce) {
  if (!std::filesystem::exists("/proc/self/schedstat"))
    GTEST_SKIP() << "this kernel does not count how long threads wait";
  const SpinControl control;
  const int before = threads_of_this_process();
  {
    const ThreadsOfOneCore two(2);
    wait_until([&] { return threads_of_this_process() >= before + 2 + omp_get_num_procs(); });
  }
  wait_until([&] { return threads_of_this_process() == before; });
}

TEST_F(SpinControlTest, LeavesItToTheEnvironmentAndToSingleThreads) {
  const int before = threads_of_this_process();
  const auto starts_a_thread = [&] {
    const SpinControl control;
    return threads_of_this_process() > before;
  };
  EXPECT_TRUE(starts_a_thread());
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}) {
    setenv(name, "PASSIVE", 1);
    EXPECT_FALSE(starts_a_thread()) << name;
    unsetenv(name);
  }
  omp_set_num_threads(1);
  EXPECT_FALSE(starts_a_thread());
}

}  // namespace
}  // namespace lab::spin_control_test
