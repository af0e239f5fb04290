// Sampler: the order in which a rank reads the sequences of a dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lab {

/// All of [0, count) in an order that depends only on seed and epoch: the same on every rank and
/// every machine (Fisher-Yates over std::mt19937_64).
std::vector<int64_t> epoch_order(int64_t count, uint64_t seed, int64_t epoch);

/// Picks this rank's shard from the order of an epoch. Lab 02 writes it.
using Shard = std::function<std::vector<int64_t>(std::span<const int64_t> order)>;

/// What must be saved to resume exactly where training stopped.
struct SamplerState {
  int64_t epoch = 0;
  int64_t position = 0;  // within this rank's shard of the epoch

  bool operator==(const SamplerState&) const = default;
};

/// Endless stream of sequence indices: every sequence of the shard once per epoch, in a new order
/// each epoch.
class Sampler {
 public:
  /// `shard`: empty reads everything. Throws Error if `sequences` is 0 or the shard is empty.
  Sampler(int64_t sequences, uint64_t seed, Shard shard = {});

  /// The next `count` indices; continues into the next epoch when one ends.
  std::vector<int64_t> next(int64_t count);

  SamplerState state() const { return state_; }
  /// Throws Error if the position is outside the shard.
  void restore(const SamplerState& state);

 private:
  std::vector<int64_t> shard_of(int64_t epoch) const;

  int64_t sequences_;
  uint64_t seed_;
  Shard shard_;
  SamplerState state_;
  std::vector<int64_t> order_;  // the shard of this epoch
};

}  // namespace lab
