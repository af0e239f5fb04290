// TokenDataset: a tokenized corpus, packed into sequences of equal length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "common/data/batch.h"
#include "common/data/tokenizer.h"

namespace lab {

/// The last 5 % of a corpus are held out for validation: the stories that end after the first 95 %
/// of its bytes, but never the first story.
enum class Split { kTrain, kValidation };

/// The stories of one corpus as one stream of tokens per split: BOS story EOS BOS story EOS ...
/// Sequence i of length T is the tokens [i*T, (i+1)*T) of the stream. Packing means that every
/// sequence is full, so every microbatch has equally many targets; a story may be cut at the end of
/// a sequence, and a story longer than T spans several.
///
/// The corpus is tokenized once, on all cores, into a memory-mapped cache file. Its name is made
/// from the corpus's path and the tokenizer's checksum; it contains the size and modification time
/// of the corpus. The cache of a changed corpus, or a damaged or foreign one, is replaced, with a
/// note on stderr. A half-written one never appears.
class TokenDataset {
 public:
  /// Opens the cache, or makes it, showing progress on stderr and calling `going_on`, if given,
  /// repeatedly. Throws Error: corpus missing, empty, without stories, not UTF-8; folder not
  /// writable; disk full.
  TokenDataset(const std::filesystem::path& corpus, const Tokenizer& tokenizer,
               const std::filesystem::path& cache_folder,
               const std::function<void()>& going_on = {});
  ~TokenDataset();
  TokenDataset(TokenDataset&&) noexcept;

  int64_t story_count(Split split) const;
  int64_t token_count(Split split) const;
  /// The number of full sequences of `length` tokens. It can be 0 for validation; throws Error if
  /// there is none to train on.
  int64_t sequence_count(Split split, int64_t length) const;

  /// Sequences `indices` as a batch [indices.size(), length]. Throws Error for an index that does
  /// not exist, and for a token outside the vocabulary (the cache is damaged: delete it).
  TokenBatch batch(Split split, std::span<const int64_t> indices, int64_t length) const;

  /// Identifies corpus and tokenizer by content: equal on all ranks that read the same data.
  uint64_t fingerprint() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
