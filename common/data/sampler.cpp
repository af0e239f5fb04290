#include "common/data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "common/error.h"
#include "common/format.h"

namespace lab {
namespace {

/// Spreads every bit of `x` over all bits (the finalizer of SplitMix64; Steele et al., 2014).
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// A number in [0, bound), uniformly distributed. std::uniform_int_distribution would do, but each
/// standard library implements it differently.
uint64_t bounded(std::mt19937_64& random, uint64_t bound) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const uint64_t limit = kMax - kMax % bound;  // a multiple of bound
  for (;;) {
    const uint64_t value = random();
    if (value < limit) return value % bound;
  }
}

}  // namespace

std::vector<int64_t> epoch_order(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(mix(mix(seed) ^ static_cast<uint64_t>(epoch)));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[bounded(random, i)]);
  return order;
}

Sampler::Sampler(int64_t sequences, uint64_t seed, Shard shard)
    : sequences_(sequences), seed_(seed), shard_(std::move(shard)) {
  require(sequences > 0, "there is no sequence to read: the text is shorter than one sequence");
  order_ = shard_of(0);
}

std::vector<int64_t> Sampler::shard_of(int64_t epoch) const {
  std::vector<int64_t> order = epoch_order(sequences_, seed_, epoch);
  if (shard_) order = shard_(order);
  require(!order.empty(), "this rank's shard of an epoch of {} is empty",
          counted(sequences_, "sequence"));
  for (const int64_t index : order)
    require(index >= 0 && index < sequences_, "the shard holds sequence {}, but there are {}",
            index, sequences_);
  return order;
}

std::vector<int64_t> Sampler::next(int64_t count) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    if (state_.position == static_cast<int64_t>(order_.size())) {
      order_ = shard_of(state_.epoch + 1);
      state_ = {state_.epoch + 1, 0};
    }
    indices.push_back(order_[static_cast<size_t>(state_.position++)]);
  }
  return indices;
}

void Sampler::restore(const SamplerState& state) {
  require(state.epoch >= 0, "cannot resume in epoch {} of the data", state.epoch);
  std::vector<int64_t> order = state.epoch == state_.epoch ? order_ : shard_of(state.epoch);
  const auto size = static_cast<int64_t>(order.size());
  require(0 <= state.position && state.position <= size,
          "cannot resume at sequence {} of an epoch of {}: other data, context or number of ranks?",
          state.position, size);
  order_ = std::move(order);
  state_ = state;
}

}  // namespace lab
