// SimClock: when the ranks of a simulation do what, according to a cost model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/comm/cost_model.h"

namespace lab {

/// What travelled over one link, and when; times in seconds from the beginning. A collective has
/// one such entry per member, for all that it sends to the next member.
struct SimTraffic {
  int from = 0;  // ranks of the world
  int to = 0;
  double bytes = 0;
  double start = 0;
  double end = 0;
};

/// Every rank has its own clock, which advances when the rank computes and when it waits. A
/// transfer starts when both sides have posted it and their ends of the link are free: a rank sends
/// one at a time and receives one at a time. Of several that could start, the earliest goes first;
/// ties go to the lowest sender, then to the transfer that it posted first. So times do not depend
/// on the order in which the threads of ranks happened to run.
///
/// `run_next` is called only when all ranks wait. What they post later cannot start before the
/// transfer that woke them has ended: transfers are run in the order of time.
class SimClock {
 public:
  SimClock(const CostModel& costs, int ranks);

  double now(int rank) const { return at(rank).now; }
  /// How long the rank has computed so far.
  double computed(int rank) const { return at(rank).computed; }
  void compute(int rank, double seconds);
  /// Records that the rank has waited for something that ended at `time`.
  void wait_until(int rank, double time);

  /// A message, or a collective, whose members each send to the next one, in `rounds` rounds.
  struct Transfer {
    std::vector<int> members;  // a message: from, to
    bool collective = false;
    int rounds = 1;
    double bytes = 0;   // of one round, over each link
    double posted = 0;  // when the last side posted it
    int64_t order = 0;  // among those that the first member has posted
    std::function<void(double start, double end)> done = {};
  };
  void add(Transfer transfer) { waiting_.push_back(std::move(transfer)); }
  /// Runs the transfer that starts first and calls its `done`; false if there is none.
  bool run_next();

  const CostModel& costs() const { return costs_; }
  const std::vector<SimTraffic>& traffic() const { return traffic_; }

 private:
  struct Rank {
    double now = 0;
    double computed = 0;
    double out_free = 0;  // when it can send the next message
    double in_free = 0;
  };
  using Links = std::vector<std::pair<int, int>>;  // from, to

  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  static Links links_of(const Transfer& transfer);
  double start_of(const Transfer& transfer) const;

  const CostModel costs_;
  std::vector<Rank> ranks_;
  std::vector<Transfer> waiting_;
  std::vector<SimTraffic> traffic_;
};

}  // namespace lab
