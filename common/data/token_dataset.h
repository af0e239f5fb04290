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

/// The last 5 % of a corpus are held out: the stories that end behind the first 95 % of its bytes,
/// but never the first story.
enum class Split { kTrain, kValidation };

/// The stories of one corpus as one stream of tokens per split: BOS story EOS BOS story EOS ...
/// Sequence i of length T is the tokens [i*T, (i+1)*T) of the stream. Packing means that every
/// sequence is full, so every microbatch has equally many targets; a story may be cut by the edge
/// of a sequence, and a story longer than T spans several.
///
/// Tokenized once, on all cores, into a memory-mapped cache file. Its name is made of the corpus'
/// path and the tokenizer's checksum; inside stand the size and modification time of the corpus. A
/// cache of a corpus that has changed, a damaged or a foreign one is replaced, with a note on
/// stderr. A half-written one never appears.
class TokenDataset {
 public:
  /// Opens the cache, or makes it with its progress on stderr; meanwhile it calls `going_on`, if
  /// given, again and again. Throws Error: corpus missing, empty, without stories, not UTF-8;
  /// folder not writable; disk full.
  TokenDataset(const std::filesystem::path& corpus, const Tokenizer& tokenizer,
               const std::filesystem::path& cache_folder,
               const std::function<void()>& going_on = {});
  ~TokenDataset();
  TokenDataset(TokenDataset&&) noexcept;

  int64_t story_count(Split split) const;
  int64_t token_count(Split split) const;
  /// Full sequences of `length` tokens. 0 is possible for validation; throws Error if there is not
  /// a single one to train on.
  int64_t sequence_count(Split split, int64_t length) const;

  /// Sequences `indices` as a batch [indices.size(), length]. Throws Error for an index that does
  /// not exist, and for a token outside the vocabulary (the cache was damaged: to be deleted).
  TokenBatch batch(Split split, std::span<const int64_t> indices, int64_t length) const;

  /// Identifies corpus and tokenizer by content: equal on all ranks that read the same data.
  uint64_t fingerprint() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
