// The Transport over NCCL: collectives and messages of one group.
#include "common/comm/nccl_transport.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <utility>

#include "common/error.h"
#include "common/gpu/nccl/collectives.h"
#include "common/gpu/nccl/connections.h"
#include "common/gpu/nccl/gpu_place.h"
#include "common/gpu/nccl/messages.h"
#include "common/tensor/accelerator.h"

namespace lab {
namespace nccl {
namespace {

using std::chrono::milliseconds;

/// Time that a group ending in good order has for its last messages and for closing.
constexpr milliseconds kGrace{2000};

ncclRedOp_t reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kSum:
      break;
  }
  return ncclSum;
}

struct Member {
  std::string group;
  int rank = 0;
  int size = 1;
};

/// The id that rank 0 of the group makes for it. Throws Error if it does not do so in time.
std::string common_id(Store& store, const Member& member, milliseconds timeout) {
  const std::string key = fmt::format("nccl/{}/id", member.group);
  if (member.rank != 0) {
    try {
      return store.get(key, timeout);
    } catch (const StoreTimeout&) {
      fail("rank 0 has not begun to connect the GPUs of its group within {}", seconds(timeout));
    }
  }
  const std::string id = make_unique_id();
  store.set(key, id);
  return id;
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const Member& member, Store& store, milliseconds timeout)
      : store_(store),
        connections_(std::make_shared<Connections>()),
        messages_(std::make_shared<Messages>(store, connections_, member.group, member.rank)),
        collectives_(*connections_, common_id(store, member, timeout), member.rank, member.size,
                     timeout) {}

  ~NcclTransport() override {
    // A rank that leaves because of an exception does not wait for others.
    if (std::uncaught_exceptions() > 0)
      messages_->break_off("this rank has failed");
    else
      messages_->close(Patience(kGrace));
  }

  std::unique_ptr<Transfer> send(std::span<const float> data, int to, uint64_t slot) override {
    // NCCL does not write to the memory that it sends from.
    return messages_->post({.data = const_cast<float*>(data.data()),
                            .bytes = data.size_bytes(),
                            .peer = to,
                            .slot = slot,
                            .send = true});
  }

  std::unique_ptr<Transfer> recv(std::span<float> data, int from, uint64_t slot) override {
    return messages_->post({.data = data.data(),
                            .bytes = data.size_bytes(),
                            .peer = from,
                            .slot = slot,
                            .send = false});
  }

  void barrier(const Collective& call) override {
    guarded([&] { collectives_.barrier(call); });
  }

  void broadcast(std::span<float> data, int root, const Collective& call) override {
    run(call, data.size(), [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclBroadcast(data.data(), data.data(), data.size(), ncclFloat32, root, communicator,
                           stream);
    });
  }

  void reduce(std::span<float> data, int root, ReduceOp op, const Collective& call) override {
    run(call, data.size(), [&](ncclComm_t communicator, cudaStream_t stream) {
      float* result = collectives_.rank() == root ? data.data() : nullptr;
      return ncclReduce(data.data(), result, data.size(), ncclFloat32, reduction(op), root,
                        communicator, stream);
    });
  }

  void all_reduce(std::span<float> data, ReduceOp op, const Collective& call) override {
    run(call, data.size(), [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, reduction(op),
                           communicator, stream);
    });
  }

  void all_gather(std::span<const float> input, std::span<float> output,
                  const Collective& call) override {
    run(call, input.size(), [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclAllGather(input.data(), output.data(), input.size(), ncclFloat32, communicator,
                           stream);
    });
  }

  void reduce_scatter(std::span<const float> input, std::span<float> output, ReduceOp op,
                      const Collective& call) override {
    run(call, output.size(), [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclReduceScatter(input.data(), output.data(), output.size(), ncclFloat32,
                               reduction(op), communicator, stream);
    });
  }

  std::unique_ptr<Transfer> post(const Posted& posted) override {
    std::shared_ptr<Collectives::Posted> launched;
    guarded([&] {
      launched = collectives_.post(posted.call, [&](ncclComm_t communicator, cudaStream_t stream) {
        return ask(posted, communicator, stream);
      });
    });
    posted.started(0);  // or later: the GPU does not say
    return std::make_unique<PostedTransfer>(*this, std::move(launched), posted.finished);
  }

  // Not by ncclCommSplit: a member that is late would hold up all ranks of this group.
  std::unique_ptr<Transport> connect(const std::vector<int>& ranks, const std::string& name,
                                     milliseconds timeout) override {
    messages_->require_whole();
    const auto self = std::ranges::find(ranks, collectives_.rank()) - ranks.begin();
    const Member member{
        .group = name, .rank = static_cast<int>(self), .size = static_cast<int>(ranks.size())};
    return std::make_unique<NcclTransport>(member, store_, timeout);
  }

 private:
  /// Must not outlive the transport; ProcessGroup sees to that.
  class PostedTransfer final : public Transfer {
   public:
    PostedTransfer(NcclTransport& transport, std::shared_ptr<Collectives::Posted> posted,
                   std::function<void(int64_t)> finished)
        : transport_(transport), posted_(std::move(posted)), finished_(std::move(finished)) {}

    void wait(milliseconds timeout) override {
      transport_.guarded([&] {
        const Patience patience(timeout);
        while (!transport_.collectives_.finished(*posted_)) patience.pause_or_fail();
      });
      finished_(0);
    }

   private:
    NcclTransport& transport_;
    std::shared_ptr<Collectives::Posted> posted_;
    std::function<void(int64_t)> finished_;
  };

  static ncclResult_t ask(const Posted& posted, ncclComm_t communicator, cudaStream_t stream) {
    const float* input = posted.input.data();
    float* output = posted.output.data();
    if (posted.kind == OpKind::kAllGather)
      return ncclAllGather(input, output, posted.input.size(), ncclFloat32, communicator, stream);
    if (posted.kind == OpKind::kReduceScatter)
      return ncclReduceScatter(input, output, posted.output.size(), ncclFloat32,
                               reduction(posted.op), communicator, stream);
    return ncclAllReduce(input, output, posted.output.size(), ncclFloat32, reduction(posted.op),
                         communicator, stream);
  }

  /// Calls `body`; if it fails, all connections of the group end, because NCCL's state is unknown.
  template <typename Body>
  void guarded(const Body& body) {
    messages_->require_whole();
    activate_gpu_for_messages();
    try {
      body();
    } catch (const std::exception& error) {
      messages_->break_off(error.what());
      throw;
    }
  }

  template <typename Body>
  void run(const Collective& call, size_t count, const Body& body) {
    if (count == 0) return barrier(call);  // NCCL would not wait for the others
    guarded([&] { collectives_.run(call, body); });
  }

  Store& store_;
  std::shared_ptr<Connections> connections_;
  std::shared_ptr<Messages> messages_;
  Collectives collectives_;
};

}  // namespace
}  // namespace nccl

std::string nccl_problem() {
  const AcceleratorSupport support = accelerator_support();
  if (support.count == 0) return support.problem;
  try {
    int version = 0;
    static_cast<void>(ncclGetVersion(&version));  // loads NCCL
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void prepare_for_nccl() {
  constexpr int kUnlessSet = 0;
  // A kernel of NCCL waits for another rank. It must hold up neither kernels of other streams, with
  // which it might share a queue of the GPU, nor the loading of kernels, which waits for all
  // running ones.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kUnlessSet);
  setenv("CUDA_MODULE_LOADING", "EAGER", kUnlessSet);
}

std::unique_ptr<Transport> connect_nccl(const NcclOptions& options, Store& store) {
  nccl::exchange_gpu_places(store, options.rank, options.size, options.timeout);
  nccl::activate_gpu();
  const nccl::Member member{.group = "world", .rank = options.rank, .size = options.size};
  return std::make_unique<nccl::NcclTransport>(member, store, options.timeout);
}

}  // namespace lab
