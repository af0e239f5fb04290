// TokenBatch: what a training step reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/error.h"

namespace lab {

/// Fills the end of a row that is shorter than the others. Never a token of any vocabulary.
inline constexpr int32_t kPadding = -1;

/// B token sequences of length T, row-major [B, T]. Row b is tokens[b*T .. b*T+T); the row of a
/// sequence shorter than T is filled up with kPadding; that of an empty sequence is all padding. A
/// rank that must not read the tokens may have none at all, only B and T.
struct TokenBatch {
  int64_t batch = 0;   // B
  int64_t length = 0;  // T
  std::vector<int32_t> tokens;

  /// Row b, T tokens.
  std::span<const int32_t> row(int64_t b) const {
    return std::span(tokens).subspan(static_cast<size_t>(b * length), static_cast<size_t>(length));
  }

  /// How many predictions count: position t predicts token t+1, so every token except the first of
  /// each row is a target; padding is not. B·(T-1) for full rows. Throws Error without tokens.
  int64_t target_count() const {
    require(static_cast<int64_t>(tokens.size()) == batch * length,
            "target_count: the batch [{}, {}] has {} tokens: may this rank read them?", batch,
            length, tokens.size());
    int64_t count = 0;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 1; t < length; ++t) count += row(b)[static_cast<size_t>(t)] != kPadding;
    return count;
  }
};

}  // namespace lab
