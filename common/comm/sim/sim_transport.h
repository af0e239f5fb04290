// SimTransport: the Transport of one rank in a simulation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/sim/sim_network.h"
#include "common/comm/transport.h"

namespace lab {

/// Ignores deadlines: simulated time has nothing to do with them, and a wait that would never end
/// is found without them. No collective returns on any rank before all have entered it; reductions
/// add in the order of ranks.
class SimTransport final : public Transport {
 public:
  /// `members`: ranks of the world, in the order of their numbers in the group; `rank` indexes it.
  SimTransport(SimNetwork& network, std::string group, std::vector<int> members, int rank);

  std::unique_ptr<Transfer> send(std::span<const float> data, int to, uint64_t slot) override;
  std::unique_ptr<Transfer> recv(std::span<float> data, int from, uint64_t slot) override;
  void run(const Collective& collective) override;
  std::unique_ptr<Transfer> post(const Collective& collective) override;
  std::unique_ptr<Transport> connect(const std::vector<int>& ranks, const std::string& name,
                                     std::chrono::milliseconds timeout) override;
  const CostModel* costs() const override { return network_.costs(); }
  void advance_clock(double seconds) override;

 private:
  std::shared_ptr<SimEntry> enter(const Collective& collective);
  int world_rank(int rank) const { return members_[static_cast<size_t>(rank)]; }

  SimNetwork& network_;
  std::string group_;
  std::vector<int> members_;
  int rank_;
};

}  // namespace lab
