// What the ranks spent their time on.
#include <algorithm>

#include "common/pipeline/drawing/drawing.h"
#include "common/pipeline/standstill.h"
#include "common/pipeline/step_timing.h"

namespace lab {

std::vector<RankShare> rank_shares(const Timeline& timeline) {
  const double whole = makespan(timeline);
  const std::vector<std::vector<double>> there = counterpart_times(timeline);
  std::vector<RankShare> shares;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    RankShare share{.name = rank_name(timeline, rank)};
    if (whole > 0) share.compute = compute_time(timeline, rank) / whole;
    const auto index = static_cast<size_t>(rank);
    const std::vector<Span>& spans = timeline.ranks[index].spans;
    for (size_t i = 0; i < spans.size() && whole > 0; ++i) {
      if (is_compute(spans[i].kind)) continue;
      share.waiting += (there[index][i] - spans[i].start) / whole;
      share.communication += (spans[i].end - there[index][i]) / whole;
    }
    share.other = std::max(0.0, 1 - share.compute - share.waiting - share.communication);
    shares.push_back(share);
  }
  return shares;
}

}  // namespace lab
