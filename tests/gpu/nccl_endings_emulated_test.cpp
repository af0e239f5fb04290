// How communicators end, in an orderly way and otherwise, with a substitute that blocks if they are
// ended in the wrong way.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/nccl_transport.h"
#include "common/comm/store/memory_store.h"
#include "common/gpu/nccl/connections.h"
#include "common/gpu/nccl/leave_behind.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/tensor.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/nccl/nccl_emulation.h"
#include "tests/gpu/nccl_test.h"
#include "tests/unit/error_of.h"

namespace lab::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using emulation::nccl::live_communicators;
using emulation::nccl::settings;
using nccl::left_behind;

/// A rank that hangs forever fails a test within this time.
constexpr auto kDeadline = 20s;

template <typename Condition>
bool becomes_true(const Condition& condition) {
  const auto deadline = Clock::now() + kDeadline;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class NcclEndings : public testing::Test {
 protected:
  ~NcclEndings() override {
    EXPECT_TRUE(becomes_true([] { return live_communicators() == 0; }));
    settings() = {};
  }

  const int left_before = left_behind();
};

/// Two communicators of one process, each with a recv that waits for a rank that sends nothing.
struct TwoThatWait {
  ncclComm_t communicators[2][2] = {};
  nccl::Stream streams[2];
  Tensor arrived = Tensor::empty({2, 64}, Device::kCuda);

  TwoThatWait() {
    for (int i = 0; i < 2; ++i) {
      ncclUniqueId id;
      ncclGetUniqueId(&id);
      for (int rank = 0; rank < 2; ++rank) make(i, rank, id);
      until_ready(i);
      const Tensor place = arrived.rows(i, i + 1);
      ncclRecv(place.data(), 64, ncclFloat32, 1, communicators[i][0], streams[i].get());
      ncclRecv(place.data(), 64, ncclFloat32, 0, communicators[i][1], streams[i].get());
      until_ready(i);
    }
  }

  void make(int which, int rank, const ncclUniqueId& id) {
    emulation::nccl::be_process("rank " + std::to_string(rank));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclCommInitRankConfig(&communicators[which][rank], 2, id, rank, &config);
  }

  void until_ready(int which) const {
    const auto is_ready = [](ncclComm_t each) {
      ncclResult_t state = ncclInProgress;
      ncclCommGetAsyncError(each, &state);
      return state == ncclSuccess;
    };
    const auto [one, other] = communicators[which];
    EXPECT_TRUE(becomes_true([&, one = one, other = other] {
      return static_cast<int>(is_ready(one)) + static_cast<int>(is_ready(other)) == 2;
    }));
  }
};

// What the stand-in is for: this is how NCCL hangs.
TEST_F(NcclEndings, OneAbortAfterTheOtherWaitsForEver) {
  const TwoThatWait two;
  std::atomic<int> aborted = 0;
  const auto abort = [&](ncclComm_t communicator) {
    ncclCommAbort(communicator);
    ++aborted;
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] { abort(two.communicators[0][rank]); });
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(aborted, 0);
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] { abort(two.communicators[1][rank]); });
  threads.clear();
  EXPECT_EQ(aborted, 4);
}

/// Both ranks wait for messages from each other, and for one that nobody sends.
void wait_in_vain(GpuRank& self) {
  const int other = 1 - self.world.rank();
  const Tensor tensor = numbers(self.world.rank(), 100);
  Work sent = self.world.isend(tensor, other);
  self.world.recv(Tensor::empty({100}, Device::kCuda), other);
  sent.wait();
  self.world.barrier();
  std::vector<Work> works;
  for (int i = 0; i < 2; ++i) works.push_back(self.world.isend(tensor, other, i));
  for (int i = 0; i < 2; ++i)
    works.push_back(self.world.irecv(Tensor::empty({99}, Device::kCuda), other, i));
  wait_all(works);
}

TEST_F(NcclEndings, AfterAFailureAllEndAtOnce) {
  for (const int version : {settings().version, 22100}) {
    settings().version = version;
    const RankErrors errors = run_ranks({.ranks = 2, .timeout = 300ms}, wait_in_vain);
    for (const std::string& error : errors)
      EXPECT_TRUE(contains(error, "no answer within 0.3 s")) << error;
    EXPECT_EQ(left_behind(), left_before) << "NCCL " << version;
  }
}

TEST_F(NcclEndings, InGoodOrderAllRanksEndThemTogether) {
  for (const int version : {settings().version, 22100}) {
    settings().version = version;
    const RankErrors errors = run_ranks({.ranks = 3}, [](GpuRank& self) {
      ProcessGroup group = self.world.split(0, -self.world.rank());
      for (ProcessGroup* each : {&self.world, &group}) {
        std::vector<Work> works;
        for (int peer = 0; peer < each->size(); ++peer) {
          if (peer == each->rank()) continue;
          works.push_back(each->isend(numbers(each->rank(), 100), peer));
          works.push_back(each->irecv(Tensor::empty({100}, Device::kCuda), peer));
        }
        wait_all(works);
      }
    });
    EXPECT_EQ(errors, RankErrors(3));
    EXPECT_EQ(live_communicators(), 0);
    EXPECT_EQ(left_behind(), left_before) << "NCCL " << version;
  }
}

/// Rank 1 keeps its connections until rank 0 has gone, which leaves in good order or with an error.
void expect_rank_0_leaves(bool fails) {
  accelerator().synchronize();
  MemoryStore store;
  std::latch rank_0_has_gone(1);
  const auto connect = [&](int rank) {
    emulation::nccl::be_process("rank " + std::to_string(rank));
    emulation::set_bus_of_thread(rank);
    return connect_nccl({.rank = rank, .size = 2, .timeout = kDeadline}, store);
  };
  std::jthread rank_1([&] {
    const std::unique_ptr<Transport> gpus = connect(1);
    EXPECT_TRUE(becomes_true([&] { return rank_0_has_gone.try_wait(); }));
  });
  std::jthread rank_0([&] {
    const auto leave = [&] {
      const std::unique_ptr<Transport> gpus = connect(0);
      if (fails) fail("something else");
    };
    EXPECT_EQ(error_of(leave), fails ? "something else" : "");
    rank_0_has_gone.count_down();
  });
}

TEST_F(NcclEndings, ARankThatFailsDoesNotWaitForOneThatStays) {
  expect_rank_0_leaves(true);
  EXPECT_EQ(left_behind(), left_before + 1);
}

TEST_F(NcclEndings, ARankThatIsDoneDoesNotWaitForOneThatStays) {
  expect_rank_0_leaves(false);
  EXPECT_EQ(left_behind(), left_before + 1);
}

TEST_F(NcclEndings, WhatIsLeftBehindEndsLater) {
  std::latch may_end(1);
  auto used = std::make_shared<int>(0);
  const std::weak_ptr<int> still_used = used;
  nccl::run_or_leave_behind([&may_end, used = std::move(used)] { may_end.wait(); }, 1ms);
  EXPECT_EQ(left_behind(), left_before + 1);
  EXPECT_FALSE(still_used.expired());
  may_end.count_down();
  EXPECT_TRUE(becomes_true([&] { return still_used.expired(); }));
}

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

TEST_F(NcclEndings, AProcessEndsThoughSomethingWasLeftBehind) {
  const auto end = [] {
    alarm(20);
    std::atexit(wait_for_ever);  // as the destructors of CUDA may
    nccl::run_or_leave_behind(wait_for_ever, 1ms);
    std::exit(7);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(7), "");
}

TEST(NcclEnvironment, IsPreparedUnlessItIsSet) {
  unsetenv("CUDA_MODULE_LOADING");
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
  prepare_for_nccl();
  EXPECT_STREQ(getenv("CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_STREQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "16");
}

}  // namespace
}  // namespace lab::test
