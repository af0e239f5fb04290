// Passes through a pipeline: what each rank is given, and what the chain of all stages makes of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/grading/verdict.h"

namespace lab04 {

using Numbers = std::vector<double>;

/// Absolute parts of a tolerance are relative to the largest number beside it.
inline constexpr double kTolerance = 1e-6;

struct Passes {
  Numbers counts;  // layers per stage
  std::vector<lab::TokenBatch> tokens = two_batches();
  float leftover = 0;  // in every gradient before the first pass
  bool stay = false;   // ranks wait for each other behind the last pass

  size_t ranks() const { return counts.size(); }
  uint64_t number() const { return tokens.size(); }
  /// Of the hidden states of all passes.
  uint64_t bytes() const;
  /// "tokens.K" for the oracle; `wrong`: see rank_chain.h.
  lab::grading::Parcel chain_input(const std::string& wrong = "") const;
  /// Without tokens: counts, passes, leftover.
  lab::grading::Parcel rank_input() const;

  /// Three rows of ten tokens; then two shorter ones, one of them with padding.
  static std::vector<lab::TokenBatch> two_batches();
};

/// A batch of the same shape for a rank that must not rely on its tokens: other tokens, or nothing
/// but padding.
lab::TokenBatch decoy(const lab::TokenBatch& tokens, size_t rank);

}  // namespace lab04
