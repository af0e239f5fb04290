// Shards whose data differ from rank to rank, as those of federated learning's clients do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/data/sampler.h"
#include "common/data/token_dataset.h"

namespace lab {

/// For every training sequence of `length` tokens, the mean of its token numbers: a one-figure
/// summary of its vocabulary. SentencePiece numbers the pieces of a BPE model in the order in which
/// it made them, frequent words before rare ones, and single letters last.
std::vector<double> mean_tokens(const TokenDataset& data, int64_t length);

/// Sequences sorted by their `keys` (equal ones by index) and cut into `world_size` blocks, of
/// which rank r reads block r, in the order of the epoch. Blocks are equally long, so that all
/// ranks take equally many steps; the last keys.size() % world_size sequences are in none.
Shard sorted_shard(std::span<const double> keys, int rank, int world_size);

}  // namespace lab
