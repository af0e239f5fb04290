// Gloo's thread waits for locks (common/comm/gloo/patient_lock.cpp), and nobody else's does.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/unit/gloo_ranks.h"

namespace lab::patient_lock_test {
namespace {

// ThreadSanitizer has a pthread_mutex_trylock of its own.
#ifndef __SANITIZE_THREAD__
TEST(PatientLock, LibrariesCallThisProgramsFunction) {
  Dl_info found{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "pthread_mutex_trylock"), &found), 0);
  EXPECT_TRUE(std::filesystem::equivalent(found.dli_fname, "/proc/self/exe")) << found.dli_fname;
}
#endif

TEST(PatientLock, OthersReturnAtOnce) {
  std::mutex mutex;
  const std::lock_guard held(mutex);
  std::thread([&] {
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_THREAD, &before);
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(mutex.try_lock());
    getrusage(RUSAGE_THREAD, &after);
    EXPECT_EQ(after.ru_nvcsw, before.ru_nvcsw) << "it slept";
  }).join();
}

TEST(PatientLock, MessagesInBothDirectionsOfAConnection) {
  constexpr int64_t kCount = 1 << 16;
  constexpr int kRounds = 50;
  const Errors errors = run_over_gloo(2, [](ProcessGroup& world) {
    const int peer = 1 - world.rank();
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Tensor> sent;
      std::vector<Tensor> received;
      std::vector<Work> works;
      for (int k = 0; k < 4; ++k) {
        received.push_back(Tensor::empty({kCount}));
        works.push_back(world.irecv(received.back(), peer, k));
        sent.push_back(Tensor::empty({kCount}));
        sent.back().fill(static_cast<float>(100 * round + 10 * k + world.rank()));
        works.push_back(world.isend(sent.back(), peer, k));
      }
      wait_all(works);
      for (int k = 0; k < 4; ++k) {
        const auto expected = static_cast<float>(100 * round + 10 * k + peer);
        for (const float number : received[static_cast<size_t>(k)].values())
          require(number == expected, "round {}, message {}: {}", round, k, number);
      }
    }
  });
  EXPECT_EQ(errors, Errors(2));
}

}  // namespace
}  // namespace lab::patient_lock_test
