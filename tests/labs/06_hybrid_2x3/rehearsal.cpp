// The lab's program with the contracted shards: any others are right as well, but would make other
// losses than the solution's.
#include "labs/06_hybrid_2x3/hybrid_2x3.h"

namespace lab06 {

std::vector<int64_t> shard(std::span<const int64_t> order, const Place& place, int dp) {
  std::vector<int64_t> share;
  const auto pipelines = static_cast<size_t>(dp);
  for (auto i = static_cast<size_t>(place.pipeline); i < order.size() / pipelines * pipelines;
       i += pipelines)
    share.push_back(order[i]);
  return share;
}

}  // namespace lab06
