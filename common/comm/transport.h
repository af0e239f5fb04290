// Transport: what a ProcessGroup needs from the network. One implementation per folder: gloo, sim,
// and nccl for GPUs.
//
// A transport moves bytes and knows nothing of tensors, tags or records. Its caller guarantees that
// ranks are in range and not this rank's own, that lengths are equal on both sides, and that all
// ranks enter every collective with the same arguments. If a program breaks these rules, the
// ProcessGroup gives the two sides different slots: both wait, which a diagnosis can explain.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/comm/cost_model.h"
#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

/// A message or collective that was started. Destroying this before it is done is safe: the
/// transport keeps what it needs.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Returns when the message has left (send: its receiver has posted the matching recv) or
  /// arrived, or when this rank's part in a collective is done. Throws Error if the time is up or
  /// the connection broke.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
};

/// The connections among the ranks of one group.
class Transport {
 public:
  virtual ~Transport() = default;

  /// Starts a message to or from a rank of the group. It meets the other side's message with the
  /// same slot (below 2^56). The memory must stay valid until the transfer is done.
  virtual std::unique_ptr<Transfer> send(std::span<const float> data, int to, uint64_t slot) = 0;
  virtual std::unique_ptr<Transfer> recv(std::span<float> data, int from, uint64_t slot) = 0;

  /// Collectives with different tags never meet.
  struct Call {
    uint32_t tag = 0;
    std::chrono::milliseconds timeout;
  };
  struct Collective {
    /// kBarrier; kBroadcast, kReduce and kAllReduce, of which input and output are the same memory
    /// (only the root's changes in a reduce); kAllGather, whose output holds the inputs of all
    /// ranks in their order; kReduceScatter, whose input has one part per rank, and whose output is
    /// this rank's part, combined over all ranks.
    OpKind kind = OpKind::kBarrier;
    std::span<const float> input = {};
    std::span<float> output = {};
    ReduceOp op = ReduceOp::kSum;
    int root = -1;
    Call call = {};
    /// For a posted collective: called, on any thread, when its turn has come and when it is done,
    /// with the simulated time in nanoseconds, or 0 for "now".
    std::function<void(int64_t at_ns)> started = {};
    std::function<void(int64_t at_ns)> finished = {};
  };
  /// Done when it returns. Throws Error as Transfer::wait does.
  virtual void run(const Collective& collective) = 0;
  /// Starts a collective that proceeds while its caller does something else; its memory must stay
  /// valid until the transfer is done. The collectives of a group run one after the other, in the
  /// order in which they are called. Null: this transport has only `run`, so the caller needs a
  /// thread.
  virtual std::unique_ptr<Transfer> post(const Collective&) { return nullptr; }

  /// Connects some ranks of this group, including this one, in a new group; all of them call it
  /// with the same arguments. `ranks`: in the order of their new numbers. `name`: different from
  /// that of any other group of the job.
  virtual std::unique_ptr<Transport> connect(const std::vector<int>& ranks, const std::string& name,
                                             std::chrono::milliseconds timeout) = 0;

  /// Only a simulation has a clock, and only one with a cost model: see ProcessGroup.
  virtual const CostModel* costs() const { return nullptr; }
  virtual void advance_clock(double /*seconds*/) {}
};

}  // namespace lab
