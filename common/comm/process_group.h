// ProcessGroup: the ranks of a job, or some of them, and the messages they exchange.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/transport.h"
#include "common/error.h"
#include "common/tensor/tensor.h"

namespace lab {

/// An operation that began and could not be finished: the peer has gone, the connection broke, or
/// the deadline has passed. Usually a consequence of what another rank did.
class BrokenOff : public Error {
 public:
  using Error::Error;
};

/// A message or collective that was posted and may not have finished yet. Keeps the memory of its
/// tensors alive.
class Work {
 public:
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  /// An operation that nobody waited for goes on without this object; the flight record shows it as
  /// pending, that is, as forgotten.
  ~Work();

  /// Returns when a send's receiver has posted the matching recv and the data has left, or when a
  /// recv's data has arrived, or when this rank has the result of a collective. Waiting again does
  /// nothing. Throws BrokenOff if the deadline of the group has passed or a peer has gone.
  void wait();

 private:
  friend class ProcessGroup;
  struct Impl;
  explicit Work(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Waits for all of them.
void wait_all(std::span<Work> works);

/// One message of a batch.
struct P2POp {
  enum class Kind { kSend, kRecv };
  Kind kind = Kind::kSend;
  Tensor tensor;
  int peer = 0;
  int tag = 0;
};

/// Verbs and meanings of torch.distributed. Ranks count from 0 within the group. Tensors are
/// contiguous, and have the same number of elements on every rank that takes part.
///
/// Tensors may be in GPU memory. Their numbers then go through pinned host memory (HostCopy), even
/// if only one side of a message is in GPU memory; or, after `connect_gpus`, straight from GPU to
/// GPU, and then all sides must be in GPU memory.
///
/// A blocking `send` returns only when the receiver has posted the matching `recv`: two ranks that
/// both send first deadlock. A recv takes the messages of a peer with the same tag in the order in
/// which they were sent.
///
/// All throw Error (rank out of range or this rank itself, tensor not contiguous, tag out of range)
/// and BrokenOff. Operations that deadlock or do not match (sizes, kinds of collectives) make both
/// sides wait; whoever watches the flight records then ends the job with an explanation. Only one
/// thread at a time may call a group.
class ProcessGroup {
 public:
  /// The group of all ranks. `recorder` must outlive the group; it records every operation.
  ProcessGroup(std::shared_ptr<Transport> transport, FlightRecorder& recorder, int rank, int size,
               std::chrono::milliseconds timeout);
  ~ProcessGroup();
  ProcessGroup(ProcessGroup&&) noexcept;

  /// Sets what moves tensors in GPU memory from now on, in this group and those split from it. All
  /// ranks call it before their next operation.
  void connect_gpus(std::shared_ptr<Transport> transport);

  int rank() const;
  int size() const;
  /// "world", or the name given to `split`.
  const std::string& name() const;
  /// This group's rank `rank`, as a rank of the world.
  int world_rank(int rank) const;
  FlightRecorder& recorder() const;

  void send(const Tensor& tensor, int to, int tag = 0);
  void recv(const Tensor& tensor, int from, int tag = 0);
  /// Post a message and return at once. The tensor must not change (isend) or be read (irecv)
  /// before `wait` has returned.
  [[nodiscard]] Work isend(const Tensor& tensor, int to, int tag = 0);
  [[nodiscard]] Work irecv(const Tensor& tensor, int from, int tag = 0);
  /// Posts all of them before any is waited for, so no order of them can deadlock.
  [[nodiscard]] std::vector<Work> batch_isend_irecv(std::span<const P2POp> operations);

  /// Collectives: every rank of the group calls the same ones in the same order.
  void barrier();
  /// Copies the root's numbers to all.
  void broadcast(const Tensor& tensor, int root = 0);
  /// Combines the numbers of all ranks, element by element, on the root; on the others the tensor
  /// keeps its numbers.
  void reduce(const Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::kSum);
  /// The same, with the result on every rank, equal to the last bit.
  void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  /// `output` is [size, ...input's shape], or as many elements under another shape. `input` may be
  /// this rank's part of `output`: in place, as with NCCL.
  void all_gather(const Tensor& output, const Tensor& input);
  /// `input` has `size` times as many elements as `output`: rank r gets part r, combined. `output`
  /// may be this rank's part of `input`: in place; the other parts then keep their numbers.
  void reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op = ReduceOp::kSum);

  /// Post a collective and return at once, so that the rank can compute while numbers travel. No
  /// tensor may change or be read before `wait` has returned.
  ///
  /// Each group has one queue: posted and blocking collectives take place one after the other, in
  /// the order in which a rank calls them, which must be the same on all ranks. A blocking one
  /// therefore returns after all that were posted before it. The order of waiting is free. A group
  /// that ends waits for what it has posted, unless the rank leaves because of an exception.
  [[nodiscard]] Work all_reduce_async(const Tensor& tensor, ReduceOp op = ReduceOp::kSum);
  [[nodiscard]] Work all_gather_async(const Tensor& output, const Tensor& input);
  [[nodiscard]] Work reduce_scatter_async(const Tensor& output, const Tensor& input,
                                          ReduceOp op = ReduceOp::kSum);

  /// All ranks call it; those that pass the same color form a new group, numbered by key, then by
  /// rank. `name` appears in diagnoses: "pipeline 1".
  ProcessGroup split(int color, int key, const std::string& name = "");

  /// Lets this rank compute for `seconds` of simulated time. Without a cost model (CostModel) it
  /// does nothing: real time needs no such call.
  void advance_clock(double seconds) const;
  /// The cost model of the simulation; null if there is none.
  const CostModel* costs() const;

  /// Tags lie in [0, kMaxTag].
  static constexpr int kMaxTag = (1 << 30) - 1;

 private:
  struct Impl;
  friend class Work;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with works that are not finished
};

}  // namespace lab
