// NCCL that fails, is slow, or is asked for what it refuses: what only the stand-in can be made to
// do. Its ranks are threads; in the program of these tests, so are those of
// nccl_transport_test.cpp.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/nccl_transport.h"
#include "common/comm/store/memory_store.h"
#include "common/gpu/nccl/connections.h"
#include "common/gpu/nccl/gpu_place.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/tensor.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/nccl/nccl_emulation.h"
#include "tests/gpu/nccl_ranks.h"
#include "tests/unit/error_of.h"

namespace lab::test {
namespace {

using namespace std::chrono_literals;
using emulation::nccl::live_communicators;
using emulation::nccl::settings;

/// Each thread acts as a process with its own GPU, unless `share`.
RankErrors run_threads(const RankOptions& options, const RankBody& body, bool share) {
  accelerator().synchronize();  // opened before several threads ask for it
  MemoryStore store;
  RankErrors errors(static_cast<size_t>(options.ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] {
      emulation::set_bus_of_thread(share ? 0 : rank);
      emulation::nccl::be_process("rank " + std::to_string(rank));
      errors[static_cast<size_t>(rank)] = run_one_rank(options, rank, store, body);
    });
  threads.clear();
  return errors;
}

[[maybe_unused]] const bool kRanksAreThreads = [] {
  rank_runner() = {[](const RankOptions& options, const RankBody& body) {
                     return run_threads(options, body, false);
                   },
                   [](int) { return ""; }};
  return true;
}();

auto threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

/// What was left behind ends when all ranks have.
void expect_no_communicators() {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (live_communicators() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(live_communicators(), 0);
}

class NcclFailures : public testing::Test {
 protected:
  ~NcclFailures() override {
    expect_no_communicators();
    settings() = {};
  }
};

Tensor ones(int64_t count) {
  const Tensor tensor = Tensor::empty({count}, Device::kCuda);
  tensor.fill(1);
  return tensor;
}

void expect_both(const RankErrors& errors, const std::string& part) {
  for (const std::string& error : errors) EXPECT_TRUE(contains(error, part)) << error;
}

TEST_F(NcclFailures, SharedGpusAreRefusedOnEveryRank) {
  const RankErrors errors = run_threads(
      {.ranks = 3}, [](GpuRank&) {}, true);
  expect_both(errors, "ranks 0 and 1 share GPU 0 (0000:01:00.0) of host ");
  expect_both(errors, "use --comm gloo");
}

TEST_F(NcclFailures, SharedGpusPassWithHostIdsOfTheirOwn) {
  using nccl::GpuPlace;
  const GpuPlace one{.host = "a", .bus_id = "0000:01:00.0", .index = 0};
  const GpuPlace other{.host = "a", .bus_id = "0000:02:00.0", .index = 1};
  const GpuPlace elsewhere{.host = "b", .bus_id = "0000:01:00.0", .index = 0};
  nccl::require_own_gpus(std::vector{one, other, elsewhere});
  EXPECT_EQ(
      error_of([&] {
        nccl::require_own_gpus(std::vector{elsewhere, other, one, other});
      }),
      "ranks 1 and 3 share GPU 1 (0000:02:00.0) of host a: NCCL wants one GPU per rank: start "
      "fewer ranks, or use --comm gloo, which lets ranks share a GPU");
}

// After the check of the transport comes NCCL's own.
TEST_F(NcclFailures, SharedGpusAreRefusedByNccl) {
  emulation::set_bus_of_thread(0);
  const std::string id = nccl::make_unique_id();
  nccl::Connections connections;
  const nccl::Communicator& one = connections.connect({0, 1}, id, 0, 2, "the test");
  connections.connect({1, 0}, id, 1, 2, "the test");
  emulation::set_bus_of_thread(-1);
  const std::string error = error_of([&] { one.ready_within(nccl::Patience(5s)); });
  EXPECT_TRUE(
      contains(error, "the test: NCCL: invalid usage, Duplicate GPU detected : rank 0 and "))
      << error;
}

TEST_F(NcclFailures, ARankThatNeverComesEndsTheConnecting) {
  MemoryStore store;
  const std::string error =
      error_of([&] { connect_nccl({.rank = 0, .size = 2, .timeout = 300ms}, store); });
  EXPECT_TRUE(contains(error, "rank 1 has not said within 0.3 s which GPU it uses")) << error;
}

TEST_F(NcclFailures, ARankThatStopsWhileConnectingEndsIt) {
  MemoryStore store;
  store.set("nccl/gpu/1", "0000:02:00.0 0 elsewhere");  // then it died
  const std::string error =
      error_of([&] { connect_nccl({.rank = 0, .size = 2, .timeout = 300ms}, store); });
  EXPECT_TRUE(contains(error, "connecting the GPUs of 2 ranks: no answer within 0.3 s")) << error;
}

TEST_F(NcclFailures, SlowAnswersAreWaitedFor) {
  settings().polls = 50;
  const RankErrors errors = run_ranks({.ranks = 3}, [](GpuRank& self) {
    const Tensor sum = ones(10);
    self.world.all_reduce(sum);
    EXPECT_EQ(sum.to(Device::kCpu).data()[9], 3.0F);
    const int rank = self.world.rank();
    std::vector<Work> works;
    for (int i = 0; i < 4; ++i) {
      works.push_back(self.world.isend(ones(10), (rank + 1) % 3, i));
      works.push_back(self.world.irecv(Tensor::empty({10}, Device::kCuda), (rank + 2) % 3, i));
    }
    wait_all(works);
  });
  EXPECT_EQ(errors, RankErrors(3));
}

TEST_F(NcclFailures, MessagesThatNeedTheirReceiverWaitForIt) {
  settings().buffer_bytes = 0;
  const RankErrors errors = run_ranks({.ranks = 2}, [](GpuRank& self) {
    const Tensor arrived = Tensor::empty({2}, Device::kCuda);
    Work send = self.world.isend(ones(2), 1 - self.world.rank());
    self.world.recv(arrived, 1 - self.world.rank());
    send.wait();
    EXPECT_EQ(arrived.to(Device::kCpu).data()[1], 1.0F);
  });
  EXPECT_EQ(errors, RankErrors(2));
}

TEST_F(NcclFailures, AFailedCollectiveSaysWhy) {
  settings().failing_size = 2;
  settings().failing_operation = 4;  // the second collective: each compares tags before
  const RankErrors errors = run_ranks({.ranks = 2, .timeout = 500ms}, [](GpuRank& self) {
    self.world.all_reduce(ones(5));
    self.world.all_reduce(ones(5));
  });
  EXPECT_TRUE(contains(errors[0], "all_reduce #2")) << errors[0];
  EXPECT_TRUE(contains(errors[0], "NCCL: unhandled system error: a call of the operating system"))
      << errors[0];
  EXPECT_TRUE(contains(errors[0], "set NCCL_DEBUG=WARN to see more")) << errors[0];
  EXPECT_TRUE(contains(errors[1], "no answer within 0.5 s")) << errors[1];
}

TEST_F(NcclFailures, AFailedMessageSaysWhyAndEndsTheGroup) {
  settings().failing_size = 2;
  settings().failing_rank = 1;  // the receiver, in the communicator of the messages
  settings().failing_operation = 2;
  settings().failure = ncclRemoteError;
  const RankErrors errors = run_ranks({.ranks = 2, .timeout = 500ms}, [](GpuRank& self) {
    if (self.world.rank() == 0) {
      self.world.send(ones(5), 1);
      self.world.send(ones(5), 1);
      return;
    }
    const Tensor arrived = Tensor::empty({5}, Device::kCuda);
    self.world.recv(arrived, 0);
    const std::string error = error_of([&] { self.world.recv(arrived, 0); });
    EXPECT_TRUE(contains(error, "messages from rank 0 to rank 1: NCCL: remote process exited"))
        << error;
    self.world.all_reduce(ones(5));
  });
  EXPECT_TRUE(contains(errors[0], "send(to 1")) << errors[0];
  EXPECT_TRUE(contains(errors[1], "closed earlier: messages from rank 0 to rank 1")) << errors[1];
}

TEST_F(NcclFailures, NothingIsLeftBehindByARankThatWasLeftAlone) {
  const auto threads = threads_of_this_process();
  for (const bool connected : {false, true}) {
    const RankErrors errors = run_ranks({.ranks = 2, .timeout = 300ms}, [&](GpuRank& self) {
      if (connected) {
        if (self.world.rank() == 0) self.world.send(ones(5), 1);
        if (self.world.rank() == 1) self.world.recv(Tensor::empty({5}, Device::kCuda), 0);
      }
      if (self.world.rank() == 1) return;
      std::vector<Work> works;
      for (int i = 0; i < 3; ++i) works.push_back(self.world.isend(ones(100), 1, i));
      works[1].wait();
    });
    EXPECT_TRUE(contains(errors[0], "no answer within 0.3 s")) << errors[0];
    expect_no_communicators();
  }
  EXPECT_LE(threads_of_this_process(), threads);
}

TEST_F(NcclFailures, RecordedWorkCannotHoldMessages) {
  const RankErrors errors = run_ranks({.ranks = 2}, [](GpuRank& self) {
    if (self.world.rank() == 1) return;
    const Tensor tensor = ones(5);
    const std::string error = error_of([&] {
      accelerator().record([&] {
        self.gpus.run({.kind = OpKind::kAllReduce,
                       .input = {tensor.data(), 5},
                       .output = {tensor.data(), 5},
                       .call = {.tag = 1, .timeout = 1s}});
      });
    });
    EXPECT_TRUE(contains(error, "cannot be recorded")) << error;
  });
  EXPECT_EQ(errors[0], "");
}

}  // namespace
}  // namespace lab::test
