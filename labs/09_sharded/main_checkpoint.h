// Lab 09 · checkpoints of a model in shards: every rank writes its own, any number of ranks reads
// them. Given.
#pragma once

#include <filesystem>
#include <vector>

#include "common/run/checkpoint/saved_tensors.h"
#include "labs/09_sharded/sharded.h"

namespace lab09 {

/// This rank's shards of the weights and of each kind of the optimizer's state, as views. A tensor
/// is named after its part, its rank and the number of ranks: "model.layers.3, shard 2 of 3".
std::vector<lab::SavedGroup> saved_shards(const Sharded& sharded);

/// Reads this rank's shards from those that any number of ranks have saved; task 7 says which
/// elements come from which. Throws lab::Error naming the file if something is missing or damaged.
void load_shards(Sharded& sharded, const std::filesystem::path& checkpoint);

}  // namespace lab09
