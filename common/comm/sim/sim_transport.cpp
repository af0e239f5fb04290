// SimTransport: its operations in terms of the simulated network.
#include "common/comm/sim/sim_transport.h"

#include <algorithm>
#include <utility>

#include "common/comm/combine.h"

namespace lab {
namespace {

using Parts = std::vector<SimPart>;

/// Of a message or a collective.
class SimTransfer final : public Transfer {
 public:
  SimTransfer(SimNetwork& network, std::shared_ptr<SimSide> side)
      : network_(network), side_(std::move(side)) {}
  ~SimTransfer() override { side_->abandon(); }
  SimTransfer(const SimTransfer&) = delete;
  SimTransfer& operator=(const SimTransfer&) = delete;

  void wait(std::chrono::milliseconds) override { network_.wait(*side_); }

 private:
  SimNetwork& network_;
  std::shared_ptr<SimSide> side_;
};

std::vector<float> combine_inputs(const Parts& parts, ReduceOp op) {
  std::vector<float> result(parts[0].input.begin(), parts[0].input.end());
  for (size_t rank = 1; rank < parts.size(); ++rank)
    combine(op, result, result.data(), parts[rank].input.data());
  return result;
}

/// The outputs of all ranks.
void fill(const Parts& parts, OpKind kind, ReduceOp op, int root) {
  std::vector<float> result;  // of which each rank gets all, or its part
  if (kind == OpKind::kAllGather)
    for (const SimPart& part : parts)
      result.insert(result.end(), part.input.begin(), part.input.end());
  else if (kind == OpKind::kBroadcast)
    result.assign(parts[static_cast<size_t>(root)].input.begin(),
                  parts[static_cast<size_t>(root)].input.end());
  else
    result = combine_inputs(parts, op);
  auto next = result.begin();
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const std::span<float> output = parts[rank].output;
    if (kind == OpKind::kReduce && static_cast<int>(rank) != root) continue;
    std::copy_n(next, output.size(), output.begin());
    if (kind == OpKind::kReduceScatter) next += std::ssize(output);
  }
}

}  // namespace

SimTransport::SimTransport(SimNetwork& network, std::string group, std::vector<int> members,
                           int rank)
    : network_(network), group_(std::move(group)), members_(std::move(members)), rank_(rank) {}

std::unique_ptr<Transfer> SimTransport::send(std::span<const float> data, int to, uint64_t slot) {
  auto post = network_.send({group_, world_rank(rank_), world_rank(to), slot}, data);
  return std::make_unique<SimTransfer>(network_, std::move(post));
}

std::unique_ptr<Transfer> SimTransport::recv(std::span<float> data, int from, uint64_t slot) {
  auto post = network_.recv({group_, world_rank(from), world_rank(rank_), slot}, data);
  return std::make_unique<SimTransfer>(network_, std::move(post));
}

void SimTransport::run(const Collective& collective) { network_.wait(*enter(collective)); }

std::unique_ptr<Transfer> SimTransport::post(const Collective& collective) {
  return std::make_unique<SimTransfer>(network_, enter(collective));
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

std::shared_ptr<SimEntry> SimTransport::enter(const Collective& collective) {
  const auto entry = std::make_shared<SimEntry>();
  entry->rank = world_rank(rank_);
  entry->part = {collective.input, collective.output};
  entry->started = collective.started;
  entry->finished = collective.finished;
  // Around the ring of all members once, or twice.
  const int steps = static_cast<int>(members_.size()) - 1;
  const bool once =
      collective.kind == OpKind::kAllGather || collective.kind == OpKind::kReduceScatter;
  network_.enter({.group = group_,
                  .tag = collective.call.tag,
                  .members = members_,
                  .rounds = once ? steps : 2 * steps,
                  .combine = [kind = collective.kind, op = collective.op, root = collective.root](
                                 const Parts& parts) { fill(parts, kind, op, root); }},
                 rank_, entry);
  return entry;
}

}  // namespace lab
