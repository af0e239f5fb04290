// The Transport interface on top of Gloo's contexts and buffers.
#include "common/comm/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/comm/combine.h"
#include "common/comm/gloo/gloo_log.h"
#include "common/comm/gloo/gloo_store.h"
#include "common/error.h"

namespace lab {
namespace {

using gloo::transport::UnboundBuffer;
using Milliseconds = std::chrono::milliseconds;
using GlooDevice = std::shared_ptr<gloo::transport::Device>;
using Context = std::shared_ptr<gloo::rendezvous::Context>;
using Clock = std::chrono::steady_clock;

// Gloo's own collectives use the prefixes 1 to 8 in the top byte of a slot.
constexpr uint64_t kReduceScatterPrefix = uint64_t{0x40} << 56;

constexpr int kAttempts = 5;  // to connect

/// Without Gloo's source: "[./gloo/transport/tcp/pair.cc:598] Connection ...".
std::string text_of(const gloo::Exception& error) {
  const std::string text = error.what();
  return text.starts_with("[./") ? text.substr(text.find("] ") + 2) : text;
}

/// Calls `body` and turns what Gloo throws into an Error.
template <typename Body>
auto guarded(const Body& body) {
  try {
    return body();
  } catch (const gloo::Exception& error) {
    throw Error(text_of(error));
  }
}

// Gloo does not write through the pointers of buffers that it sends from.
float* writable(std::span<const float> data) { return const_cast<float*>(data.data()); }

/// `combine` in the form in which Gloo calls it.
auto reduction(ReduceOp op) {
  return [op](void* result, const void* a, const void* b, size_t count) {
    combine(op, {static_cast<float*>(result), count}, static_cast<const float*>(a),
            static_cast<const float*>(b));
  };
}

constexpr Milliseconds kShortest{1};  // Gloo takes 0 for no limit

Milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()), kShortest);
}

class GlooTransfer final : public Transfer {
 public:
  GlooTransfer(std::unique_ptr<UnboundBuffer> buffer, bool is_send)
      : buffer_(std::move(buffer)), is_send_(is_send) {}

  void wait(Milliseconds timeout) override {
    guarded([&] { is_send_ ? buffer_->waitSend(timeout) : buffer_->waitRecv(timeout); });
  }

 private:
  std::unique_ptr<UnboundBuffer> buffer_;
  bool is_send_;
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(GlooDevice device, Store& store, Context context, std::vector<int> members)
      : device_(std::move(device)),
        store_(store),
        context_(std::move(context)),
        members_(std::move(members)) {}

  std::unique_ptr<Transfer> send(std::span<const float> data, int to, uint64_t slot) override {
    return guarded([&] {
      auto buffer = context_->createUnboundBuffer(writable(data), data.size_bytes());
      buffer->send(to, slot, 0, data.size_bytes());
      return std::make_unique<GlooTransfer>(std::move(buffer), true);
    });
  }

  std::unique_ptr<Transfer> recv(std::span<float> data, int from, uint64_t slot) override {
    return guarded([&] {
      auto buffer = context_->createUnboundBuffer(data.data(), data.size_bytes());
      buffer->recv(from, slot, 0, data.size_bytes());
      return std::make_unique<GlooTransfer>(std::move(buffer), false);
    });
  }

  void run(const Collective& collective) override {
    guarded([&] {
      switch (collective.kind) {
        case OpKind::kBroadcast:
          return broadcast(collective);
        case OpKind::kReduce:
          return reduce(collective);
        case OpKind::kAllReduce:
          return all_reduce(collective);
        case OpKind::kAllGather:
          return all_gather(collective);
        case OpKind::kReduceScatter:
          return reduce_scatter(collective);
        default:
          auto options = options_of<gloo::BarrierOptions>(collective.call);
          gloo::barrier(options);
      }
    });
  }

  std::unique_ptr<Transport> connect(const std::vector<int>& ranks, const std::string& name,
                                     Milliseconds timeout) override {
    const auto self = std::ranges::find(ranks, context_->rank);
    std::vector<int> members;
    for (const int rank : ranks) members.push_back(members_[static_cast<size_t>(rank)]);
    return connect(device_, store_, name, members,
                   {.rank = static_cast<int>(self - ranks.begin()),
                    .size = static_cast<int>(ranks.size()),
                    .timeout = timeout});
  }

  /// Older versions of Gloo take the first connection to the port that waits for a rank for that
  /// rank's; one from elsewhere, such as a port scanner, spoils the group. Then all ranks connect
  /// again, through other ports, and wait twice as long. `members`: as the world numbers them.
  static std::unique_ptr<Transport> connect(GlooDevice device, Store& store,
                                            const std::string& name,
                                            const std::vector<int>& members,
                                            const GlooOptions& options) {
    const auto deadline = Clock::now() + options.timeout;
    const auto tell_all = [&](const std::string& keys, const std::string& problem) {
      store.set(keys + std::to_string(options.rank), problem);
      return first_problem(store, keys, members, deadline, options.timeout);
    };
    for (int attempt = 0;; ++attempt) {
      const std::string keys = fmt::format("gloo/{}/{}/", name, attempt);
      tell_all(keys + "here/", "");
      const auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
      std::string problem;
      try {
        connect_all(context, std::make_shared<GlooStore>(store, keys + "address/", until(deadline)),
                    device, std::min(options.patience * (1 << attempt), until(deadline)));
      } catch (const gloo::Exception& error) {
        problem = text_of(error);
      } catch (const StoreTimeout&) {
        problem = "a rank did not say in time where it listens";
      }
      // A rank must not leave before all others are connected to it, even if it is connected to all
      // of them: a rank with little to do would close its end while a slower one still waits for
      // the connection.
      problem = tell_all(keys + "problem/", problem);
      if (problem.empty()) return std::make_unique<GlooTransport>(device, store, context, members);
      if (attempt + 1 == kAttempts) throw Error(problem);
    }
  }

 private:
  void broadcast(const Collective& c) {
    auto options = options_of<gloo::BroadcastOptions>(c.call);
    options.setOutput(c.output.data(), c.output.size());
    options.setRoot(c.root);
    gloo::broadcast(options);
  }

  void reduce(const Collective& c) {
    auto options = options_of<gloo::ReduceOptions>(c.call);
    std::vector<float> result(c.output.size());  // Gloo uses it on the other ranks as well
    options.setInput(writable(c.input), c.input.size());
    options.setOutput(result.data(), result.size());
    options.setRoot(c.root);
    options.setReduceFunction(reduction(c.op));
    gloo::reduce(options);
    if (context_->rank == c.root) std::ranges::copy(result, c.output.begin());
  }

  void all_reduce(const Collective& c) {
    auto options = options_of<gloo::AllreduceOptions>(c.call);
    options.setOutput(c.output.data(), c.output.size());
    options.setReduceFunction(reduction(c.op));
    gloo::allreduce(options);
  }

  void all_gather(const Collective& c) {
    auto options = options_of<gloo::AllgatherOptions>(c.call);
    const size_t first = static_cast<size_t>(context_->rank) * c.input.size();
    const bool in_place = c.input.data() == c.output.data() + first;
    if (!in_place) options.setInput(writable(c.input), c.input.size());
    options.setOutput(c.output.data(), c.output.size());
    gloo::allgather(options);
  }

  /// Gloo has no such operation on unbound buffers. A ring: the part of rank r starts at rank r + 1
  /// and is added up on its way around until it reaches rank r.
  void reduce_scatter(const Collective& c) {
    const int size = context_->size;
    const int rank = context_->rank;
    const size_t count = c.output.size();
    const auto part = [&](int step) {
      const int owner = (rank + 2 * size - step) % size;
      return c.input.subspan(static_cast<size_t>(owner) * count, count);
    };
    std::vector<float> outgoing(part(1).begin(), part(1).end());
    std::vector<float> incoming(count);
    for (int step = 2; step <= size; ++step) {
      const uint64_t slot = kReduceScatterPrefix | uint64_t{c.call.tag} << 24 | uint64_t(step);
      const auto arrives = recv(incoming, (rank + size - 1) % size, slot);
      const auto leaves = send(outgoing, (rank + 1) % size, slot);
      arrives->wait(c.call.timeout);
      leaves->wait(c.call.timeout);
      combine(c.op, {outgoing.data(), count}, incoming.data(), part(step).data());
    }
    std::ranges::copy(outgoing, c.output.begin());
  }

  template <typename Options>
  Options options_of(const Call& call) const {
    Options options(context_);
    options.setTag(call.tag);
    options.setTimeout(call.timeout);
    return options;
  }

  /// Connects to all ranks, and makes sure that they are the right ones.
  static void connect_all(const Context& context, std::shared_ptr<GlooStore> keys,
                          GlooDevice& device, Milliseconds patience) {
    context->setTimeout(std::max(patience / 5, kShortest));  // Gloo waits five for a connection
    connect_full_mesh(*context, std::move(keys), device);
    gloo::BarrierOptions all_connected(context);
    all_connected.setTimeout(patience);
    gloo::barrier(all_connected);
  }

  /// The problem of the first rank that has one, the same on every rank; "" if none has.
  static std::string first_problem(Store& store, const std::string& keys,
                                   const std::vector<int>& members, Clock::time_point deadline,
                                   Milliseconds timeout) {
    std::string first;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto theirs = store.get_within(keys + std::to_string(i), until(deadline));
      require(theirs.has_value(), "rank {} has not connected within {:g} s", members[i],
              std::chrono::duration<double>(timeout).count());
      if (first.empty()) first = *theirs;
    }
    return first;
  }

  // Newer versions of Gloo take the store as a shared pointer.
  template <typename SomeContext>
  static void connect_full_mesh(SomeContext& context,
                                std::shared_ptr<gloo::rendezvous::Store> store,
                                GlooDevice& device) {
    if constexpr (requires { context.connectFullMesh(store, device); })
      context.connectFullMesh(store, device);
    else
      context.connectFullMesh(*store, device);
  }

  GlooDevice device_;  // its thread moves the data of all groups
  Store& store_;
  Context context_;
  std::vector<int> members_;  // as the world numbers them
};

}  // namespace

std::unique_ptr<Transport> connect_gloo(const GlooOptions& options, Store& store) {
  static const QuietGloo quiet;  // for all groups, until the program ends
  gloo::transport::tcp::attr attributes;
  attributes.hostname = options.address;  // else Gloo asks for the name of this machine
  GlooDevice device;
  try {
    device = gloo::transport::tcp::CreateDevice(attributes);
  } catch (const gloo::Exception& error) {
    fail("cannot listen at {}: is it an address of this machine? ({})", options.address,
         error.what());
  }
  std::vector<int> ranks(static_cast<size_t>(options.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return GlooTransport::connect(std::move(device), store, "world", ranks, options);
}

}  // namespace lab
