#include "common/data/sorted_shard.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lab {

std::vector<double> mean_tokens(const TokenDataset& data, int64_t length) {
  std::vector<double> means;
  const int64_t count = data.sequence_count(Split::kTrain, length);
  for (int64_t i = 0; i < count; ++i) {
    const TokenBatch batch = data.batch(Split::kTrain, {&i, 1}, length);
    const double sum = std::accumulate(batch.tokens.begin(), batch.tokens.end(), 0.0);
    means.push_back(sum / static_cast<double>(length));
  }
  return means;
}

Shard sorted_shard(std::span<const double> keys, int rank, int world_size) {
  std::vector<size_t> sorted(keys.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::ranges::stable_sort(sorted, {}, [&](size_t i) { return keys[i]; });

  const size_t length = keys.size() / static_cast<size_t>(world_size);
  std::vector<bool> own(keys.size());
  for (size_t i = 0; i < length; ++i) own[sorted[static_cast<size_t>(rank) * length + i]] = true;

  return [own = std::move(own)](std::span<const int64_t> order) {
    std::vector<int64_t> shard;
    for (const int64_t index : order)
      if (own[static_cast<size_t>(index)]) shard.push_back(index);
    return shard;
  };
}

}  // namespace lab
