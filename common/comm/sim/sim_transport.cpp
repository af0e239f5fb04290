// SimTransport: its operations in terms of the simulated network.
#include "common/comm/sim/sim_transport.h"

#include <algorithm>
#include <utility>

#include "common/comm/combine.h"

namespace lab {
namespace {

using Parts = std::vector<SimPart>;

/// Of a message or a collective.
template <typename Post>
class SimTransfer final : public Transfer {
 public:
  SimTransfer(SimNetwork& network, std::shared_ptr<Post> post)
      : network_(network), post_(std::move(post)) {}
  ~SimTransfer() override { post_->abandon(); }
  SimTransfer(const SimTransfer&) = delete;
  SimTransfer& operator=(const SimTransfer&) = delete;

  void wait(std::chrono::milliseconds) override { network_.wait(*post_); }

 private:
  SimNetwork& network_;
  std::shared_ptr<Post> post_;
};

std::vector<float> combine_inputs(const Parts& parts, ReduceOp op) {
  std::vector<float> result(parts[0].input.begin(), parts[0].input.end());
  for (size_t rank = 1; rank < parts.size(); ++rank)
    combine(op, result, result.data(), parts[rank].input.data());
  return result;
}

void reduce_to_all(const Parts& parts, ReduceOp op) {
  const std::vector<float> result = combine_inputs(parts, op);
  for (const auto& part : parts) std::ranges::copy(result, part.output.begin());
}

void gather_to_all(const Parts& parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.input.begin(), part.input.end());
  for (const auto& part : parts) std::ranges::copy(all, part.output.begin());
}

void reduce_and_scatter(const Parts& parts, ReduceOp op) {
  const std::vector<float> result = combine_inputs(parts, op);
  auto next = result.begin();
  for (const auto& part : parts) {
    const auto last = next + static_cast<std::ptrdiff_t>(part.output.size());
    std::copy(next, last, part.output.begin());
    next = last;
  }
}

}  // namespace

SimTransport::SimTransport(SimNetwork& network, std::string group, std::vector<int> members,
                           int rank)
    : network_(network), group_(std::move(group)), members_(std::move(members)), rank_(rank) {}

std::unique_ptr<Transfer> SimTransport::send(std::span<const float> data, int to, uint64_t slot) {
  auto post = network_.send({group_, world_rank(rank_), world_rank(to), slot}, data);
  return std::make_unique<SimTransfer<SimPost>>(network_, std::move(post));
}

std::unique_ptr<Transfer> SimTransport::recv(std::span<float> data, int from, uint64_t slot) {
  auto post = network_.recv({group_, world_rank(from), world_rank(rank_), slot}, data);
  return std::make_unique<SimTransfer<SimPost>>(network_, std::move(post));
}

void SimTransport::barrier(const Collective& call) {
  meet(call, {}, Rounds::kTwice, [](const Parts&) {});
}

void SimTransport::broadcast(std::span<float> data, int root, const Collective& call) {
  meet(call, {data, data}, Rounds::kTwice, [root](const Parts& parts) {
    const auto source = parts[static_cast<size_t>(root)].input;
    for (const auto& part : parts) std::ranges::copy(source, part.output.begin());
  });
}

void SimTransport::reduce(std::span<float> data, int root, ReduceOp op, const Collective& call) {
  meet(call, {data, data}, Rounds::kTwice, [root, op](const Parts& parts) {
    std::ranges::copy(combine_inputs(parts, op), parts[static_cast<size_t>(root)].output.begin());
  });
}

void SimTransport::all_reduce(std::span<float> data, ReduceOp op, const Collective& call) {
  meet({.kind = OpKind::kAllReduce, .input = data, .output = data, .op = op, .call = call});
}

void SimTransport::all_gather(std::span<const float> input, std::span<float> output,
                              const Collective& call) {
  meet({.kind = OpKind::kAllGather, .input = input, .output = output, .call = call});
}

void SimTransport::reduce_scatter(std::span<const float> input, std::span<float> output,
                                  ReduceOp op, const Collective& call) {
  meet({.kind = OpKind::kReduceScatter, .input = input, .output = output, .op = op, .call = call});
}

std::unique_ptr<Transfer> SimTransport::post(const Posted& posted) {
  return std::make_unique<SimTransfer<SimEntry>>(network_, enter(posted));
}

std::unique_ptr<Transport> SimTransport::connect(const std::vector<int>& ranks,
                                                 const std::string& name,
                                                 std::chrono::milliseconds) {
  std::vector<int> members;
  for (int rank : ranks) members.push_back(world_rank(rank));
  const auto self = std::ranges::find(ranks, rank_) - ranks.begin();
  return std::make_unique<SimTransport>(network_, name, std::move(members), static_cast<int>(self));
}

void SimTransport::advance_clock(double seconds) {
  network_.advance_clock(world_rank(rank_), seconds);
}

std::shared_ptr<SimEntry> SimTransport::enter(const Collective& call, const SimEntry& entry,
                                              Rounds rounds, const Combine& combine) {
  const int steps = static_cast<int>(members_.size()) - 1;
  const auto shared = std::make_shared<SimEntry>(entry);
  shared->rank = world_rank(rank_);
  network_.enter({.group = group_,
                  .tag = call.tag,
                  .members = members_,
                  .rounds = rounds == Rounds::kTwice ? 2 * steps : steps,
                  .combine = combine},
                 rank_, shared);
  return shared;
}

std::shared_ptr<SimEntry> SimTransport::enter(const Posted& posted) {
  SimEntry entry;
  entry.part = {posted.input, posted.output};
  entry.started = posted.started;
  entry.finished = posted.finished;
  if (posted.kind == OpKind::kAllGather)
    return enter(posted.call, entry, Rounds::kOnce, gather_to_all);
  const ReduceOp op = posted.op;
  if (posted.kind == OpKind::kReduceScatter)
    return enter(posted.call, entry, Rounds::kOnce,
                 [op](const Parts& parts) { reduce_and_scatter(parts, op); });
  return enter(posted.call, entry, Rounds::kTwice,
               [op](const Parts& parts) { reduce_to_all(parts, op); });
}

void SimTransport::meet(const Posted& posted) { network_.wait(*enter(posted)); }

void SimTransport::meet(const Collective& call, const SimPart& part, Rounds rounds,
                        const Combine& combine) {
  SimEntry entry;
  entry.part = part;
  network_.wait(*enter(call, entry, rounds, combine));
}

}  // namespace lab
