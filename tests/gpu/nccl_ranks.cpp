#include "tests/gpu/nccl_ranks.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <thread>

#include "common/comm/gloo/gloo_transport.h"
#include "common/comm/nccl_transport.h"
#include "common/comm/store/file_store.h"
#include "common/run/launch/child_process.h"
#include "common/tensor/accelerator.h"
#include "tests/unit/temp_folder.h"

namespace lab::test {
namespace {

using namespace std::chrono_literals;

constexpr const char* kRank = "LAB_NCCL_TEST_RANK";      // set in a rank's process
constexpr const char* kCall = "LAB_NCCL_TEST_CALL";      // which run_ranks of the test it is for
constexpr const char* kFolder = "LAB_NCCL_TEST_FOLDER";  // of the store

bool shares_gpus() { return std::getenv("LAB_NCCL_SHARE_GPU") != nullptr; }

std::string name_of_test() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  return std::string(test.test_suite_name()) + "." + test.name();
}

/// Counts the calls of run_ranks in this test.
int next_call() {
  static std::string test;
  static int calls = 0;
  if (test != name_of_test()) calls = 0;
  test = name_of_test();
  return ++calls;
}

/// In a rank's process: runs the rank and ends the process.
[[noreturn]] void be_rank(const RankOptions& options, const RankBody& body) {
  const int rank = std::atoi(std::getenv(kRank));
  use_accelerator(rank % accelerator_support().count);
  FileStore store(std::getenv(kFolder));
  const std::string error = run_one_rank(options, rank, store, body);
  std::printf("%s", error.c_str());
  std::fflush(stdout);
  std::_Exit(error.empty() && !testing::Test::HasFailure() ? 0 : 1);
}

std::string outcome_of(ChildProcess& child) {
  const auto deadline = std::chrono::steady_clock::now() + 300s;
  while (child.running()) {
    child.read_output();
    if (std::chrono::steady_clock::now() > deadline) return "did not end";
    std::this_thread::sleep_for(5ms);
  }
  child.read_output();
  return child.wait_status() == 0 ? "" : child.output();
}

RankErrors run_processes(const RankOptions& options, const RankBody& body) {
  const std::string call = std::to_string(next_call());
  if (std::getenv(kRank) != nullptr) {
    if (call == std::getenv(kCall)) be_rank(options, body);
    return RankErrors(static_cast<size_t>(options.ranks));
  }
  const TempFolder folder;
  std::list<ChildProcess> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::map<std::string, std::string> environment{
        {kRank, std::to_string(rank)}, {kCall, call}, {kFolder, folder.path() / "store"}};
    // NCCL allows it from version 2.30 on; older ones may, if ranks pass for hosts.
    if (shares_gpus())
      environment.insert({{"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
                          {"NCCL_HOSTID", "rank" + std::to_string(rank)},
                          {"NCCL_NET", "Socket"},
                          {"NCCL_SOCKET_IFNAME", "lo"}});
    children.emplace_back(
        std::vector<std::string>{"/proc/self/exe", "--gtest_filter=" + name_of_test()},
        environment);
  }
  RankErrors errors;
  for (ChildProcess& child : children) errors.push_back(outcome_of(child));
  return errors;
}

std::string why_not_processes(int ranks) {
  prepare_for_nccl();
  if (!nccl_problem().empty()) return nccl_problem();
  const int gpus = accelerator_support().count;
  if (gpus >= ranks || shares_gpus()) return "";
  return "NCCL wants a GPU for each of " + std::to_string(ranks) + " ranks, and there are " +
         std::to_string(gpus) + " (LAB_NCCL_SHARE_GPU=1 lets them share)";
}

}  // namespace

RankRunner& rank_runner() {
  static RankRunner runner{run_processes, why_not_processes};
  return runner;
}

RankErrors run_ranks(const RankOptions& options, const RankBody& body) {
  return rank_runner().run(options, body);
}

std::string why_not_run(int ranks) { return rank_runner().why_not(ranks); }

std::string run_one_rank(const RankOptions& options, int rank, Store& store, const RankBody& body) {
  try {
    FlightRecorder recorder(rank);
    const int size = options.ranks;
    ProcessGroup world(
        connect_gloo({.rank = rank, .size = size, .timeout = options.connect}, store), recorder,
        rank, size, options.timeout);
    const std::shared_ptr<Transport> gpus =
        connect_nccl({.rank = rank, .size = size, .timeout = options.connect}, store);
    world.connect_gpus(gpus);
    GpuRank self{world, *gpus};
    body(self);
    world.barrier();  // nobody leaves while others still use its connections
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace lab::test
