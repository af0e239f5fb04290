// Inputs of passes through a pipeline.
#include "tests/labs/04_pipeline_1f1b/verdict_passes.h"

#include <fmt/format.h>

#include "tests/labs/01_single_gpu/random_input.h"
#include "tests/labs/04_pipeline_1f1b/verdict_messages.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab04 {

using lab::TokenBatch;
using lab::grading::Parcel;
using pipeline_tests::kVocab;

uint64_t Passes::bytes() const {
  uint64_t bytes = 0;
  for (const TokenBatch& batch : tokens) bytes += hidden_bytes(batch.batch, batch.length);
  return bytes;
}

Parcel Passes::rank_input() const {
  Parcel input;
  input.set("counts", counts);
  input.set("passes", static_cast<double>(tokens.size()));
  input.set("leftover", leftover);
  input.set("stay", stay ? 1 : 0);
  return input;
}

Parcel Passes::chain_input(const std::string& wrong) const {
  Parcel input = rank_input();
  for (size_t k = 0; k < tokens.size(); ++k) input.set(fmt::format("tokens.{}", k), tokens[k]);
  input.set_text("wrong", wrong);
  return input;
}

std::vector<TokenBatch> Passes::two_batches() {
  return {lab01::random_tokens({10, 10, 10}, 10, kVocab, 61),
          lab01::random_tokens({7, 4}, 7, kVocab, 62)};
}

TokenBatch decoy(const TokenBatch& tokens, size_t rank) {
  const auto rows = static_cast<size_t>(tokens.batch);
  const int64_t kept = rank % 2 == 1 ? 0 : tokens.length;
  return lab01::random_tokens(std::vector<int64_t>(rows, kept), tokens.length, kVocab, 900 + rank);
}

}  // namespace lab04
