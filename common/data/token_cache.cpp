// Names, checks and opens cache files. build_cache is in build_cache.cpp.
#include "common/data/token_cache.h"

#include <fmt/format.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>

#include "common/error.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "tokens are stored low byte first");
static_assert(std::is_trivially_copyable_v<CacheHeader>);
static_assert(sizeof(CacheHeader) == 88, "no padding, which would have a checksum of its own");

/// Whether the file has the length that its header implies.
bool size_matches(const CacheHeader& header, size_t file_bytes) {
  if (header.token_bytes != 2 && header.token_bytes != 4) return false;
  auto rest = static_cast<int64_t>(file_bytes - sizeof(CacheHeader));
  for (const int64_t tokens : header.tokens) {
    if (tokens < 0 || tokens > rest / header.token_bytes) return false;
    rest -= tokens * header.token_bytes;
  }
  return rest == 0;
}

}  // namespace

uint64_t header_checksum(const CacheHeader& header) {
  return checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(CacheHeader, header)));
}

CacheKey cache_key(const fs::path& corpus, const Tokenizer& tokenizer) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(corpus, error);
  if (!error) {
    const fs::file_time_type time = fs::last_write_time(corpus, error);
    if (!error)
      return {static_cast<int64_t>(bytes), static_cast<int64_t>(time.time_since_epoch().count()),
              tokenizer.checksum()};
  }
  fail("cannot open corpus {}: {}", corpus.string(), error.message());
}

fs::path cache_path(const fs::path& corpus, const Tokenizer& tokenizer, const fs::path& folder) {
  const std::string identity =
      fmt::format("{}\n{}", fs::weakly_canonical(corpus).string(), tokenizer.checksum());
  return folder / fmt::format("{}-{:016x}.tokens", corpus.stem().string().substr(0, 100),
                              checksum(std::as_bytes(std::span(identity))));
}

std::optional<TokenCache> open_cache(const fs::path& path, const CacheKey& key) {
  if (!fs::exists(path)) return std::nullopt;
  TokenCache cache{MappedFile(path), {}};
  const std::span<const std::byte> bytes = cache.file.bytes();
  const CacheHeader current;
  bool whole = bytes.size() >= sizeof(CacheHeader);
  if (whole) {
    std::memcpy(&cache.header, bytes.data(), sizeof(CacheHeader));
    whole = cache.header.magic == current.magic && cache.header.version == current.version &&
            cache.header.header == header_checksum(cache.header) &&
            size_matches(cache.header, bytes.size());
  }
  if (whole && cache.header.key == key) return cache;
  fmt::print(stderr, "note: {} {}; tokenizing again\n", path.string(),
             whole ? "was made from an earlier version of the corpus"
                   : "is damaged or of another version");
  return std::nullopt;
}

}  // namespace lab
