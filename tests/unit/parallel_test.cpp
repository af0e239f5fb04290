#include "common/tensor/parallel.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <vector>

#include "common/error.h"

namespace lab::parallel_test {
namespace {

TEST(Parallel, EveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    parallel_for(0, count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
    for (const auto& c : calls) EXPECT_EQ(c, 1);
  }
}

TEST(Parallel, BlocksCoverTheRangeWithoutOverlap) {
  for (const int64_t count : {0, 1, 10, 11}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    parallel_blocks(count, 5, [&](int64_t first, int64_t last) {
      EXPECT_LE(last - first, 5);
      for (int64_t i = first; i < last; ++i) ++calls[static_cast<size_t>(i)];
    });
    for (const auto& c : calls) EXPECT_EQ(c, 1);
  }
}

TEST(Parallel, NeverAsManyThreadsAsFitNoMemory) {
  const int before = thread_count();
  omp_set_num_threads(100'000);  // as OMP_NUM_THREADS does
  EXPECT_LE(thread_count(), 1024);
  set_thread_count(before);
}

TEST(Parallel, AnExceptionComesOutOfTheLoop) {
  std::atomic<int> calls = 0;
  const auto body = [&](int64_t i) {
    ++calls;
    require(i % 3 != 0, "index {}", i);
  };
  EXPECT_THROW(parallel_for(0, 100, body), Error);
  EXPECT_EQ(calls, 100) << "the other indices are not skipped";
  const auto nested = [](int64_t) { parallel_for(0, 4, [](int64_t) { fail("inside"); }); };
  EXPECT_THROW(parallel_for(0, 4, nested), Error);
}

}  // namespace
}  // namespace lab::parallel_test
