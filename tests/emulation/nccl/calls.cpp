// Groups of calls: how they are gathered, handed to a stream, and done there.
#include <algorithm>
#include <utility>

#include "tests/emulation/lock.h"
#include "tests/emulation/nccl/communicators.h"
#include "tests/emulation/nccl/nccl_emulation.h"
#include "tests/emulation/runtime.h"
#include "tests/emulation/streams.h"

namespace lab::emulation::nccl {
namespace {

/// What this thread has asked for since ncclGroupStart.
struct OpenGroup {
  int depth = 0;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  Operations calls;
  std::vector<ncclComm_t> ending;
};

OpenGroup& open_group() {
  static thread_local OpenGroup result;
  return result;
}

/// A collective in a stream: begins when its turn comes, and is done when all others have arrived.
class Work {
 public:
  Work(const ncclComm& communicator, Operations calls, bool never)
      : clique_(communicator.clique),
        ended_(communicator.ended),
        rank_(communicator.rank),
        number_(communicator.collectives),
        calls_(std::move(calls)),
        never_(never) {}

  void step() {
    if (*ended_) return;
    if (never_) throw NotReady{};
    if (!begun_)
      for (const auto& each : calls_) begin(*clique_, rank_, each, number_);
    begun_ = true;
    if (!done()) run_others();
    if (!done()) throw NotReady{};
  }

 private:
  bool done() const;
  void run_others() const;

  std::shared_ptr<Clique> clique_;
  std::shared_ptr<bool> ended_;
  int rank_;
  size_t number_;
  Operations calls_;
  bool never_;
  bool begun_ = false;
};

bool Work::done() const {
  meet(*clique_);
  return std::ranges::all_of(calls_, [](const auto& each) { return each->done; });
}

/// A GPU processes its streams while the host waits for something else.
void Work::run_others() const {
  static bool running = false;
  if (running) return;
  const struct Running {
    Running() { running = true; }
    ~Running() { running = false; }
  } now;
  for (const auto& [rank, handle] : clique_->streams) {
    if (CUstream_st* stream = rank == rank_ ? nullptr : find_stream(handle)) run_stream(stream);
  }
}

bool peers_connect(const ncclComm& communicator) {
  for (const auto& each : communicator.pending) {
    if (!each->is_message()) continue;
    communicator.clique->connecting.insert({communicator.rank, each->peer});
    if (!communicator.clique->connecting.contains({each->peer, communicator.rank})) return false;
  }
  return true;
}

void hand_over(ncclComm& communicator) {
  const Settings& chosen = settings();
  const bool fails = communicator.clique->size == chosen.failing_size &&
                     communicator.rank == chosen.failing_rank &&
                     communicator.operations == chosen.failing_operation;
  if (fails) communicator.error = chosen.failure;
  const bool collective = !communicator.pending.front()->is_message();
  const auto work =
      std::make_shared<Work>(communicator, std::exchange(communicator.pending, {}), fails);
  if (collective) ++communicator.collectives;
  CUstream_st* stream = find_stream(communicator.stream);
  communicator.clique->streams[communicator.rank] = communicator.stream;
  if (stream == nullptr || enqueue(stream, [work] { work->step(); }) != cudaSuccess)
    communicator.error = ncclUnhandledCudaError;
}

/// Takes what a group asks of its communicator.
ncclResult_t take(const OpenGroup& group) {
  const auto lock = lock_runtime();
  ncclComm& communicator = *group.communicator;
  const bool busy = !communicator.connected || communicator.polls > 0 ||
                    !communicator.pending.empty() || communicator.error != ncclSuccess;
  if (busy) return ncclInvalidArgument;
  communicator.pending = group.calls;
  communicator.stream = group.stream;
  communicator.polls = settings().polls;
  ++communicator.operations;
  return ncclInProgress;
}

}  // namespace

void end_with_group(ncclComm_t communicator) {
  constexpr int kFirstWithGroupsOfEnds = 22200;
  OpenGroup& group = open_group();
  if (group.depth > 0 && settings().version >= kFirstWithGroupsOfEnds)
    group.ending.push_back(communicator);
  else
    end_all({communicator});
}

ncclResult_t add(ncclComm_t communicator, cudaStream_t stream, Operation operation) {
  OpenGroup& group = open_group();
  const bool single = group.depth == 0;
  if (single) ncclGroupStart();
  const bool other =
      !group.calls.empty() && (group.communicator != communicator || group.stream != stream);
  ncclResult_t result = communicator == nullptr ? ncclInvalidArgument : ncclSuccess;
  if (other || operation.peer < 0 ||
      (communicator != nullptr && operation.peer >= communicator->clique->size))
    result = ncclInvalidArgument;
  if (result == ncclSuccess) {
    group.communicator = communicator;
    group.stream = stream;
    group.calls.push_back(std::make_shared<Operation>(std::move(operation)));
  }
  const ncclResult_t end = single ? ncclGroupEnd() : ncclSuccess;
  return result == ncclSuccess ? end : result;
}

ncclResult_t progress(ncclComm& communicator) {
  if (communicator.error != ncclSuccess) return communicator.error;
  if (!communicator.connected) return ncclInProgress;
  if (communicator.polls > 0) {
    --communicator.polls;
    return ncclInProgress;
  }
  if (communicator.pending.empty()) return ncclSuccess;
  if (!peers_connect(communicator)) return ncclInProgress;
  hand_over(communicator);
  return communicator.error;
}

}  // namespace lab::emulation::nccl

using namespace lab::emulation;
using namespace lab::emulation::nccl;

ncclResult_t ncclGroupStart() {
  ++open_group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  OpenGroup& open = open_group();
  if (open.depth == 0) return ncclInvalidUsage;
  if (--open.depth > 0) return ncclSuccess;
  const OpenGroup group = std::exchange(open, {});
  end_all(group.ending);
  return group.calls.empty() ? ncclSuccess : take(group);
}
