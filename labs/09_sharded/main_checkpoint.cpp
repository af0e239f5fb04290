// Lab 09 · checkpoints of a model in shards. Given.
#include "labs/09_sharded/main_checkpoint.h"

#include <fmt/format.h>

#include <string>

#include "common/error.h"
#include "common/run/checkpoint/checkpoint_tensors.h"

namespace lab09 {

using namespace lab;

namespace {

std::string shard_name(const std::string& part, int rank, int ranks) {
  return fmt::format("{}, shard {} of {}", part, rank + 1, ranks);
}

/// How many ranks have saved a part, by the names of its shards.
int saved_ranks(const CheckpointTensors& saved, const std::string& part) {
  for (const std::string& name : saved.names())
    if (name.starts_with(part + ", shard 1 of ")) return std::stoi(name.substr(name.rfind(' ')));
  fail("{} has no shards of {}: was it written by lab 09, for a model with as many layers?",
       saved.path().string(), part);
}

/// `own`: this rank's shard of what is called `part` in the file.
void load(CheckpointTensors& saved, const std::string& part, int64_t size, ProcessGroup& world,
          const Tensor& own) {
  const int ranks = saved_ranks(saved, part);
  for (const Piece& piece : pieces_of(size, world.rank(), world.size(), ranks)) {
    const Range shard = owned(size, piece.rank, ranks);
    const Tensor theirs = Tensor::empty({shard.size()}, own.device());
    saved.copy_to(shard_name(part, piece.rank, ranks), theirs);
    own.rows(piece.to, piece.to + piece.from.size())
        .copy_from(theirs.rows(piece.from.first, piece.from.last));
  }
}

}  // namespace

std::vector<SavedGroup> saved_shards(const Sharded& sharded) {
  const auto name = [&](size_t part) {
    return shard_name(sharded.model.part_name(part), sharded.world.rank(), sharded.world.size());
  };
  std::vector<SavedGroup> groups{{.name = "model", .tensors = {}}};
  for (size_t p = 0; p < sharded.parts.size(); ++p) {
    const Part& part = sharded.parts[p];
    groups[0].tensors.push_back({name(p), part.own_values.to(Device::kCpu)});
    const std::vector<Optimizer::State> states = part.optimizer->state();
    for (size_t k = 0; k < states.size(); ++k) {
      if (groups.size() < 2 + k)
        groups.push_back({.name = "optimizer." + states[k].name, .tensors = {}});
      groups[1 + k].tensors.push_back(
          {states[k].name + "." + name(p), states[k].value.to(Device::kCpu)});
    }
  }
  return groups;
}

void load_shards(Sharded& sharded, const std::filesystem::path& checkpoint) {
  CheckpointTensors weights(checkpoint, kModelSet);
  std::optional<CheckpointTensors> state;
  for (size_t p = 0; p < sharded.parts.size(); ++p) {
    Part& part = sharded.parts[p];
    const std::string& name = sharded.model.part_name(p);
    load(weights, name, part.size, sharded.world, part.own_values);
    for (const Optimizer::State& each : part.optimizer->state()) {
      if (!state) state.emplace(checkpoint, kOptimizerSet);
      load(*state, each.name + "." + name, part.size, sharded.world, each.value);
    }
    if (sharded.stage < 3) sharded.world.all_gather(part.values, part.own_values);
  }
}

}  // namespace lab09
