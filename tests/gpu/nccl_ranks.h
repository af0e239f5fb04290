// Runs ranks that exchange GPU memory over NCCL: on GPUs as processes, on the emulation as threads.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/comm/store/store.h"
#include "common/comm/transport.h"

namespace lab::test {

/// What a rank of a test is given.
struct GpuRank {
  ProcessGroup& world;  // CPU tensors over Gloo, GPU tensors over NCCL
  Transport& gpus;      // NCCL alone
};
using RankBody = std::function<void(GpuRank&)>;

struct RankOptions {
  int ranks = 2;
  std::chrono::milliseconds timeout{20'000};   // of every operation
  std::chrono::milliseconds connect{120'000};  // of connecting
};

/// What each rank threw; "" if it returned. Failed expectations of a process count as thrown.
using RankErrors = std::vector<std::string>;

/// The ranks of one test. GPUs belong to processes: each rank is then this program once more, which
/// runs the same test and in it only what is given here.
///
/// With LAB_NCCL_SHARE_GPU=1 ranks share the available GPUs, if NCCL lets them.
RankErrors run_ranks(const RankOptions& options, const RankBody& body);

/// Why so many ranks cannot be run here, or "".
std::string why_not_run(int ranks);

/// How ranks are run instead; set by tests that come with the emulation.
struct RankRunner {
  std::function<RankErrors(const RankOptions&, const RankBody&)> run;
  std::function<std::string(int)> why_not;
};
RankRunner& rank_runner();

/// One rank from beginning to end. Returns what it threw.
std::string run_one_rank(const RankOptions& options, int rank, Store& store, const RankBody& body);

}  // namespace lab::test
