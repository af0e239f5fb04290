// The file in which a tokenized corpus is kept: a header, then the tokens of either split.
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

/// What a cache was made from. If any of it is different, the cache is made anew.
struct CacheKey {
  int64_t corpus_bytes = 0;
  int64_t corpus_time = 0;  // modification time, in ticks of the file system's clock
  uint64_t tokenizer = 0;   // checksum

  bool operator==(const CacheKey&) const = default;
};

/// First bytes of the file. Behind them lie the training tokens, then the validation tokens, all
/// of `token_bytes` bytes (2 for vocabularies up to 65,536, else 4), low byte first.
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

/// Of the header, without its last field.
uint64_t header_checksum(const CacheHeader& header);

/// An open cache file.
struct TokenCache {
  MappedFile file;
  CacheHeader header;
};

/// The key of a corpus as it is now. Throws Error if the corpus is missing.
CacheKey cache_key(const std::filesystem::path& corpus, const Tokenizer& tokenizer);

/// Where the cache of a corpus lies: the name is made of the corpus' path and the tokenizer, so
/// that the cache of a corpus that has changed is replaced.
std::filesystem::path cache_path(const std::filesystem::path& corpus, const Tokenizer& tokenizer,
                                 const std::filesystem::path& folder);

/// Opens a cache made with this key. Nothing if there is none, or if it is damaged or was made from
/// something else; the latter two are told on stderr.
std::optional<TokenCache> open_cache(const std::filesystem::path& path, const CacheKey& key);

/// Tokenizes a corpus on all cores into a new cache file, which replaces an old one when it is
/// whole. Needs little memory, however long the corpus. Progress is shown on stderr: on a terminal
/// in one line that changes, else as a line every few seconds. Calls `going_on`, if given, again
/// and again while it works. Throws Error: see TokenDataset.
void build_cache(const std::filesystem::path& corpus, const Tokenizer& tokenizer,
                 const CacheKey& key, const std::filesystem::path& path,
                 const std::function<void()>& going_on = {});

}  // namespace lab
