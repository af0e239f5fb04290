// TokenDataset: sequences from the cache file of a corpus.
#include "common/data/token_dataset.h"

#include <array>
#include <cstring>
#include <utility>

#include "common/data/token_cache.h"
#include "common/error.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

TokenCache open_or_build(const fs::path& corpus, const Tokenizer& tokenizer, const fs::path& path,
                         const std::function<void()>& going_on) {
  const CacheKey key = cache_key(corpus, tokenizer);
  if (auto cache = open_cache(path, key)) return std::move(*cache);
  build_cache(corpus, tokenizer, key, path, going_on);
  auto cache = open_cache(path, key);
  require(cache.has_value(), "cache {} was changed by another process: start again", path.string());
  return std::move(*cache);
}

size_t at(Split split) { return split == Split::kTrain ? 0 : 1; }

}  // namespace

struct TokenDataset::Impl {
  fs::path corpus;
  fs::path path;
  int64_t vocab_size = 0;
  TokenCache cache;

  /// Token number `index` of a split.
  int32_t token(Split split, int64_t index) const {
    const CacheHeader& header = cache.header;
    if (split == Split::kValidation) index += header.tokens[0];
    uint32_t value = 0;  // little-endian: two bytes fill the lower half
    std::memcpy(&value,
                cache.file.bytes().data() + sizeof(CacheHeader) +
                    static_cast<size_t>(index) * header.token_bytes,
                header.token_bytes);
    require(value < vocab_size, "cache {} is damaged (token {} of a vocabulary of {}): delete it",
            path.string(), value, vocab_size);
    return static_cast<int32_t>(value);
  }
};

TokenDataset::TokenDataset(const fs::path& corpus, const Tokenizer& tokenizer,
                           const fs::path& cache_folder, const std::function<void()>& going_on) {
  const fs::path path = cache_path(corpus, tokenizer, cache_folder);
  impl_ = std::make_unique<Impl>(
      Impl{corpus, path, tokenizer.vocab_size(), open_or_build(corpus, tokenizer, path, going_on)});
}

TokenDataset::~TokenDataset() = default;
TokenDataset::TokenDataset(TokenDataset&&) noexcept = default;

int64_t TokenDataset::story_count(Split split) const {
  return impl_->cache.header.stories[at(split)];
}

int64_t TokenDataset::token_count(Split split) const {
  return impl_->cache.header.tokens[at(split)];
}

int64_t TokenDataset::sequence_count(Split split, int64_t length) const {
  require(length > 0, "sequences of {} tokens are impossible", length);
  const int64_t count = token_count(split) / length;
  require(count > 0 || split == Split::kValidation,
          "corpus {} has {} tokens to train on, fewer than one sequence of {}: use a longer corpus "
          "or a shorter context",
          impl_->corpus.string(), token_count(split), length);
  return count;
}

TokenBatch TokenDataset::batch(Split split, std::span<const int64_t> indices,
                               int64_t length) const {
  const int64_t count = sequence_count(split, length);
  TokenBatch batch{static_cast<int64_t>(indices.size()), length, {}};
  batch.tokens.reserve(indices.size() * static_cast<size_t>(length));
  for (const int64_t index : indices) {
    require(index >= 0 && index < count, "there is no sequence {} of {} tokens in {}: it has {}",
            index, length, impl_->corpus.string(), count);
    for (int64_t t = 0; t < length; ++t)
      batch.tokens.push_back(impl_->token(split, index * length + t));
  }
  return batch;
}

uint64_t TokenDataset::fingerprint() const {
  const CacheHeader& header = impl_->cache.header;
  const std::array<uint64_t, 2> parts = {header.content, header.key.tokenizer};
  return checksum(std::as_bytes(std::span(parts)));
}

}  // namespace lab
