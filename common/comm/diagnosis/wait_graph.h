// WaitGraph: which rank waits for which, and how far the other side is.
#pragma once

#include <vector>

#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

/// How far another rank is with its part of an operation that a rank waits for.
enum class Part {
  kNotPosted,
  kDiffers,   // posted, but of another size or kind: the two will never meet
  kUnderWay,  // posted, not done
  kDone,
};

struct Counterpart {
  int rank = 0;
  Part part = Part::kNotPosted;
  /// The other rank's operation while it is pending. If that rank has not posted the message: one
  /// that it has posted to, or from, the same rank with another tag or in another group, if any.
  const OpRecord* op = nullptr;

  /// The wait cannot end unless the other rank acts.
  bool blocks() const { return part == Part::kNotPosted || part == Part::kDiffers; }
};

/// The operation that holds `waiter` up: the one it waits for, or, since the collectives of a group
/// take place one after the other, the first of that group's pending ones that the network is not
/// done with. Null if the rank waits for nothing.
const OpRecord* holding_up(const RankSnapshot& waiter);

/// How far the other side, or each other member of the group, is with the operation that holds
/// `waiter` up; empty if it waits for nothing.
std::vector<Counterpart> counterparts(const std::vector<RankSnapshot>& job,
                                      const RankSnapshot& waiter);

/// The shortest circle in a graph (edges[i]: whom i waits for), beginning with its lowest rank;
/// among several the one with the lowest ranks. Empty if there is none.
std::vector<int> shortest_circle(const std::vector<std::vector<int>>& edges);

}  // namespace lab
