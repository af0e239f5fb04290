// Tokenizes a corpus into a cache file: batches of stories, each on all cores, appended in order.
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/data/story_reader.h"
#include "common/data/token_cache.h"
#include "common/data/token_dataset.h"
#include "common/error.h"
#include "common/io/terminal.h"
#include "common/tensor/parallel.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBatchBytes = size_t{1} << 20;  // of text
constexpr size_t kBlockBytes = size_t{1} << 20;  // of tokens
constexpr double kTrainingShare = 0.95;

/// A story of the corpus, and whether it is held out for validation.
struct Story {
  std::string text;
  Split split;
};

/// Appends stories to the cache file and counts them. All training stories come before those held
/// out, as in the corpus.
class TokenWriter {
 public:
  TokenWriter(AtomicFile& file, CacheHeader& header)
      : file_(file), header_(header), hash_(XXH3_createState(), XXH3_freeState) {
    XXH3_64bits_reset(hash_.get());
  }

  void add_story(Split split, std::span<const int32_t> tokens) {
    const size_t index = split == Split::kTrain ? 0 : 1;
    header_.stories[index] += 1;
    header_.tokens[index] += static_cast<int64_t>(tokens.size());
    for (const int32_t token : tokens) {
      const auto* bytes = reinterpret_cast<const std::byte*>(&token);  // the low bytes come first
      block_.insert(block_.end(), bytes, bytes + header_.token_bytes);
    }
    if (block_.size() >= kBlockBytes) flush();
  }

  void flush() {
    XXH3_64bits_update(hash_.get(), block_.data(), block_.size());
    file_.write(block_);
    block_.clear();
  }

  uint64_t digest() const { return XXH3_64bits_digest(hash_.get()); }

 private:
  AtomicFile& file_;
  CacheHeader& header_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash_;
  std::vector<std::byte> block_;
};

/// On a terminal, one line that is rewritten and erased at the end; elsewhere, as in the pipe of a
/// launcher, a line from time to time.
class BytesProgress {
 public:
  BytesProgress(std::string title, int64_t total) : title_(std::move(title)), total_(total) {}
  ~BytesProgress() {
    if (shown_) print_if_possible(stderr, "\r\033[K");
  }
  BytesProgress(const BytesProgress&) = delete;
  BytesProgress& operator=(const BytesProgress&) = delete;

  void show(int64_t done) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const int64_t percent = 100 * done / total_;
    if (done <= 0 || seconds < next_ || (!terminal_ && percent == percent_)) return;
    percent_ = percent;
    if (!terminal_) next_ = seconds + kBetweenLines;
    shown_ = terminal_;
    const double rate = static_cast<double>(done) / seconds;
    const auto left = static_cast<int64_t>(static_cast<double>(total_ - done) / rate);
    print_if_possible(stderr, "{}{} {:3d}% {:.1f} MB/s ETA {}:{:02d}{}", terminal_ ? "\r" : "",
                      title_, percent, rate / 1e6, left / 60, left % 60,
                      terminal_ ? "\033[K" : "\n");
    std::fflush(stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kBetweenLines = 5.0;  // seconds
  std::string title_;
  int64_t total_;
  Clock::time_point start_ = Clock::now();
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  double next_ = terminal_ ? 0.3 : kBetweenLines;  // seconds since the start
  int64_t percent_ = -1;                           // last shown
  bool shown_ = false;
};

/// The next stories, about 1 MiB; none at the end of the corpus.
std::vector<Story> read_batch(StoryReader& reader) {
  std::vector<Story> stories;
  const auto training_bytes =
      static_cast<int64_t>(static_cast<double>(reader.size()) * kTrainingShare);
  std::string text;
  for (size_t bytes = 0; bytes < kBatchBytes; bytes += text.size()) {
    const bool is_first = reader.position() == 0;
    if (!reader.next(text)) break;
    const bool held_out = reader.position() > training_bytes && !is_first;
    stories.push_back({text, held_out ? Split::kValidation : Split::kTrain});
  }
  return stories;
}

/// BOS, story, EOS for each story, on all cores.
std::vector<std::vector<int32_t>> tokenize(std::span<const Story> stories,
                                           const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> result(stories.size());
  parallel_for(0, static_cast<int64_t>(stories.size()), [&](int64_t i) {
    std::vector<int32_t>& tokens = result[static_cast<size_t>(i)];
    tokens = tokenizer.encode(stories[static_cast<size_t>(i)].text);
    tokens.insert(tokens.begin(), tokenizer.bos());
    tokens.push_back(tokenizer.eos());
  });
  return result;
}

}  // namespace

void build_cache(const fs::path& corpus, const Tokenizer& tokenizer, const CacheKey& key,
                 const fs::path& path, const std::function<void()>& going_on) {
  require(key.corpus_bytes > 0, "corpus {} is empty", corpus.string());
  StoryReader reader(corpus);
  CacheHeader header;
  header.key = key;
  header.token_bytes = tokenizer.vocab_size() <= 65536 ? 2 : 4;

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&header, 1)));
  TokenWriter writer(file, header);
  {
    BytesProgress progress(fmt::format("tokenizing {}", corpus.filename().string()),
                           key.corpus_bytes);
    for (auto stories = read_batch(reader); !stories.empty(); stories = read_batch(reader)) {
      const auto tokens = tokenize(stories, tokenizer);
      for (size_t i = 0; i < stories.size(); ++i) writer.add_story(stories[i].split, tokens[i]);
      progress.show(reader.position());
      if (going_on) going_on();
    }
  }
  writer.flush();
  require(header.stories[0] > 0, "corpus {} contains no story, only white space", corpus.string());
  header.content = writer.digest();
  header.header = header_checksum(header);
  file.overwrite(0, std::as_bytes(std::span(&header, 1)));
  require(cache_key(corpus, tokenizer) == key,
          "corpus {} changed while it was read: start again when it is complete", corpus.string());
  file.commit();
}

}  // namespace lab
