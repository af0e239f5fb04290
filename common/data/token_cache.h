// The file that holds a tokenized corpus: a header, then the tokens of both splits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "common/data/tokenizer.h"
#include "common/io/files.h"

namespace lab {

/// What a cache was made from. If any of it changes, the cache is rebuilt.
struct CacheKey {
  int64_t corpus_bytes = 0;
  int64_t corpus_time = 0;  // modification time, in ticks of the file system's clock
  uint64_t tokenizer = 0;   // checksum

  bool operator==(const CacheKey&) const = default;
};

/// The first bytes of the file. They are followed by the training tokens, then the validation
/// tokens, `token_bytes` bytes each (2 for vocabularies up to 65,536, else 4), low byte first.
struct CacheHeader {
  std::array<char, 8> magic = {'L', 'A', 'B', 'T', 'O', 'K', 'E', 'N'};
  uint32_t version = 2;
  uint32_t token_bytes = 0;
  CacheKey key;
  std::array<int64_t, 2> stories{};  // training, validation
  std::array<int64_t, 2> tokens{};   //
  uint64_t content = 0;              // checksum of all tokens
  uint64_t header = 0;               // checksum of the fields above
};

/// The checksum of the header, without its last field.
uint64_t header_checksum(const CacheHeader& header);

/// An open cache file.
struct TokenCache {
  MappedFile file;
  CacheHeader header;
};

/// The key of a corpus in its current state. Throws Error if the corpus is missing.
CacheKey cache_key(const std::filesystem::path& corpus, const Tokenizer& tokenizer);

/// The path of a corpus's cache. The name is made from the corpus's path and the tokenizer, so the
/// cache of a changed corpus replaces the old one.
std::filesystem::path cache_path(const std::filesystem::path& corpus, const Tokenizer& tokenizer,
                                 const std::filesystem::path& folder);

/// Opens a cache made with this key. Nothing if there is none, or if it is damaged or was made from
/// something else; the last two are reported on stderr.
std::optional<TokenCache> open_cache(const std::filesystem::path& path, const CacheKey& key);

/// Tokenizes a corpus on all cores into a new cache file, which replaces an old one when it is
/// complete. Needs little memory, however long the corpus. Shows progress on stderr: on a terminal
/// in one line that is updated, else a line every few seconds. Calls `going_on`, if given,
/// repeatedly while it works. Throws Error: see TokenDataset.
void build_cache(const std::filesystem::path& corpus, const Tokenizer& tokenizer,
                 const CacheKey& key, const std::filesystem::path& path,
                 const std::function<void()>& going_on = {});

}  // namespace lab
