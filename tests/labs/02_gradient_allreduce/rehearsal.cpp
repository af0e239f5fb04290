// The lab's program with the contracted shards: any others are right as well, but would make other
// losses than the solution's.
#include "labs/02_gradient_allreduce/gradient_allreduce.h"

namespace lab02 {

std::vector<int64_t> shard(std::span<const int64_t> order, int rank, int world_size) {
  std::vector<int64_t> share;
  const auto ranks = static_cast<size_t>(world_size);
  for (size_t i = static_cast<size_t>(rank); i < order.size() / ranks * ranks; i += ranks)
    share.push_back(order[i]);
  return share;
}

}  // namespace lab02
