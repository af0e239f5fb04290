// What ProcessGroup and Work hide. process_group.cpp has groups and messages,
// process_group_collectives.cpp the collectives.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/comm/collective_thread.h"
#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/host_copy.h"
#include "common/comm/process_group.h"
#include "common/error.h"

namespace lab {

struct ProcessGroup::Impl : std::enable_shared_from_this<Impl> {
  std::shared_ptr<Transport> transport;     // null where this rank is alone
  std::shared_ptr<Transport> clock;         // the world's: it knows the time of a simulation
  std::shared_ptr<Transport> between_gpus;  // null: GPU memory is sent through host memory
  FlightRecorder& recorder;
  int rank = 0;
  std::vector<int> world_ranks;  // of the members
  uint32_t id = 0;
  std::string name;
  std::chrono::milliseconds timeout;
  uint64_t collectives = 0;  // entered so far
  uint64_t splits = 0;
  std::map<std::tuple<OpKind, int, int>, uint64_t> messages;  // posted, by kind, peer and tag
  std::vector<std::unique_ptr<Work::Impl>> forgotten;
  std::unique_ptr<CollectiveThread> thread;  // from the first posted collective that needs one

  Impl(std::shared_ptr<Transport> way, FlightRecorder& log, int own_rank, std::vector<int> members,
       uint32_t group, std::string title, std::chrono::milliseconds patience)
      : transport(std::move(way)),
        recorder(log),
        rank(own_rank),
        world_ranks(std::move(members)),
        id(group),
        name(std::move(title)),
        timeout(patience) {
    uint64_t bits = 0;
    for (int member : world_ranks) bits |= uint64_t{1} << member;
    recorder.add_group(id, bits, name);
  }
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int size() const { return static_cast<int>(world_ranks.size()); }
  int own_world_rank() const { return world_ranks[static_cast<size_t>(rank)]; }

  /// Whether these tensors go straight from GPU to GPU.
  bool reaches(const Tensor& tensor) const {
    return between_gpus != nullptr && tensor.device() == Device::kCuda;
  }
  bool reaches(const Tensor& one, const Tensor& other) const {
    return reaches(one) && reaches(other);
  }
  Transport& way(bool reaches_gpus) const { return reaches_gpus ? *between_gpus : *transport; }

  void check_rank(int peer, const char* what) const {
    require(peer >= 0 && peer < size(), "{}: there is no rank {} in {}, which has ranks 0 to {}",
            what, peer, name, size() - 1);
  }

  static void check_tensor(const Tensor& tensor, const char* what) {
    require(tensor.defined(), "{}: the tensor has no memory", what);
    require(tensor.is_contiguous(),
            "{}: the tensor {} is not contiguous: clone() it first, or send its rows one by one",
            what, to_string(tensor.shape()));
  }

  /// Checks the tensors of an all_gather or a reduce_scatter. In a group of one rank, copies
  /// `input` to `output`, which is all there is to do.
  void check_and_copy_if_alone(OpKind kind, const Tensor& output, const Tensor& input,
                               const char* what) const {
    check_tensor(output, what);
    check_tensor(input, what);
    const bool gathers = kind == OpKind::kAllGather;
    const Tensor& part = gathers ? input : output;
    const Tensor& whole = gathers ? output : input;
    require(whole.numel() == size() * part.numel(),
            "{}: {} ranks with {} {} need an {} of {} elements, not {}", what, size(),
            gathers ? "inputs" : "outputs", to_string(part.shape()), gathers ? "output" : "input",
            size() * part.numel(), to_string(whole.shape()));
    if (size() == 1) output.copy_from(input.view(output.shape()));
  }

  [[noreturn]] void fail_in(const OpRecord& record, const Error& error) const {
    throw BrokenOff(fmt::format("rank {}: {} broke off: {}", own_world_rank(),
                                describe(record, recorder.snapshot()), error.what()));
  }

  std::unique_ptr<Work::Impl> post(OpKind kind, const Tensor& tensor, int peer, int tag);
  /// A collective from `input` to `output`, which are the same tensor for an all_reduce.
  std::unique_ptr<Work::Impl> post_collective(OpKind kind, const Tensor& input,
                                              const Tensor& output, ReduceOp op);
  std::unique_ptr<Transfer> start(Transport::Collective posted, const Work::Impl& work,
                                  bool reaches_gpus);
  /// Waits for collectives that were posted and never waited for: the other ranks cannot finish
  /// them without this one.
  void finish_collectives();

  OpRecord collective_record(OpKind kind, int64_t elements, int root, ReduceOp op);
  Transport::Call call_of(const OpRecord& record, int root) const;
  using Body = std::function<void(const Transport::Call&)>;
  /// A blocking collective over `elements`: calls `body` with what the transport must know about
  /// it.
  void collective(OpKind kind, int64_t elements, int root, ReduceOp op, const Body& body);
  /// One that moves numbers from `input` to `output`, which are the same tensor for a broadcast,
  /// a reduce and an all_reduce.
  void blocking(OpKind kind, const Tensor& input, const Tensor& output, ReduceOp op, int root);
};

struct Work::Impl {
  std::shared_ptr<ProcessGroup::Impl> group;
  HostCopy data;   // of a message; of a collective, its output
  HostCopy input;  // of a collective
  OpRecord record;
  std::unique_ptr<Transfer> transfer;  // null once it has been waited for
};

}  // namespace lab
