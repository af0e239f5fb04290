// WaitGraph: which rank waits for which, and whether the other side has done its part.
#pragma once

#include <vector>

#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

/// How far another rank is with its part of an operation that someone waits for.
enum class Part {
  kNotPosted,
  kDiffers,   // posted, but of another size or kind: the two will never meet
  kUnderWay,  // posted, not done
  kDone,
};

struct Counterpart {
  int rank = 0;
  Part part = Part::kNotPosted;
  const OpRecord* op = nullptr;  // of the other rank, while it is pending

  /// The wait cannot end before the other rank does something.
  bool blocks() const { return part == Part::kNotPosted || part == Part::kDiffers; }
};

/// What the other side, or each other member of the group, has done for the operation that `waiter`
/// waits for; empty if it waits for nothing.
std::vector<Counterpart> counterparts(const std::vector<RankSnapshot>& job,
                                      const RankSnapshot& waiter);

/// The shortest circle in a graph (edges[i]: whom i waits for), beginning with its lowest rank;
/// among several the one with the lowest ranks. Empty if there is none.
std::vector<int> shortest_circle(const std::vector<std::vector<int>>& edges);

}  // namespace lab
