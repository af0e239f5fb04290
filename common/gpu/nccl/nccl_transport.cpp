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
    auto id = store.get_within(key, timeout);
    require(id.has_value(), "rank 0 has not begun to connect the GPUs of its group within {}",
            seconds(timeout));
    return *std::move(id);
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

  void run(const Collective& collective) override {
    // Without numbers, NCCL would not wait for the others.
    if (collective.kind == OpKind::kBarrier || collective.output.empty())
      return guarded([&] { collectives_.barrier(collective.call); });
    guarded([&] {
      collectives_.run(collective.call, [&](ncclComm_t communicator, cudaStream_t stream) {
        return ask(collective, communicator, stream);
      });
    });
  }

  std::unique_ptr<Transfer> post(const Collective& posted) override {
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

  ncclResult_t ask(const Collective& asked, ncclComm_t communicator, cudaStream_t stream) const {
    const float* input = asked.input.data();
    float* output = asked.output.data();
    const size_t count = std::min(asked.input.size(), asked.output.size());  // of one rank
    const ncclRedOp_t op = reduction(asked.op);
    switch (asked.kind) {
      case OpKind::kBroadcast:
        return ncclBroadcast(input, output, count, ncclFloat32, asked.root, communicator, stream);
      case OpKind::kReduce:
        return ncclReduce(input, collectives_.rank() == asked.root ? output : nullptr, count,
                          ncclFloat32, op, asked.root, communicator, stream);
      case OpKind::kAllGather:
        return ncclAllGather(input, output, count, ncclFloat32, communicator, stream);
      case OpKind::kReduceScatter:
        return ncclReduceScatter(input, output, count, ncclFloat32, op, communicator, stream);
      default:
        return ncclAllReduce(input, output, count, ncclFloat32, op, communicator, stream);
    }
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
