// StoryReader: makes lines from blocks of the file, and stories from lines.
#include "common/data/story_reader.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

#include "common/error.h"
#include "common/io/utf8.h"

namespace lab {
namespace {

constexpr std::string_view kMarker = "<|endoftext|>";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kMaxStoryBytes = size_t{4} << 20;  // a "word" of it takes the tokenizer 1 GB

/// Removes white space at both ends, in place.
void trim(std::string& text) {
  constexpr const char* kWhiteSpace = " \t\r\n\v\f";
  text.erase(text.find_last_not_of(kWhiteSpace) + 1);  // npos + 1 is 0: all of it
  text.erase(0, text.find_first_not_of(kWhiteSpace));
}

}  // namespace

struct StoryReader::Impl {
  std::filesystem::path path;
  std::ifstream file;
  int64_t file_bytes = 0;

  std::string block;        // the part of the file in memory
  int64_t block_end = 0;    // its end, as an offset in the file
  size_t next_line = 0;     // where in `block` the next line begins
  std::string_view line;    // what is left of the current line; part of `block`
  bool has_line = false;    // false: `line` is used up
  int64_t line_number = 0;  // of the current line, from 1

  /// Drops the lines that were read and appends the next bytes of the file; false at its end.
  bool read_block() {
    block.erase(0, next_line);
    next_line = 0;
    require(block.size() <= kMaxStoryBytes, "{}: line {} is longer than {} MiB: not a story corpus",
            path.string(), line_number + 1, kMaxStoryBytes >> 20);
    const size_t kept = block.size();
    block.resize(kept + kBlockBytes);
    file.read(block.data() + kept, static_cast<std::streamsize>(kBlockBytes));
    block.resize(kept + static_cast<size_t>(file.gcount()));
    block_end += file.gcount();
    require(!file.bad(), "cannot read {}: {}", path.string(),
            std::generic_category().message(errno));
    return file.gcount() > 0;
  }

  /// Moves `line` to the next line, without its end; false at the end of the file.
  bool read_line() {
    size_t end = block.find('\n', next_line);
    while (end == std::string::npos) {
      const size_t searched = block.size() - next_line;
      if (!read_block()) break;
      end = block.find('\n', searched);
    }
    const bool is_last = end == std::string::npos;
    if (is_last && next_line == block.size()) return false;
    line = std::string_view(block).substr(next_line, end - next_line);
    next_line = is_last ? block.size() : end + 1;
    ++line_number;
    check_line(is_last);
    if (line_number == 1 && line.starts_with(kByteOrderMark))
      line.remove_prefix(kByteOrderMark.size());
    if (line.ends_with('\r')) line.remove_suffix(1);
    return true;
  }

  void check_line(bool is_last) const {
    const size_t invalid = find_invalid_utf8(line);
    if (is_last && is_unfinished_utf8(line.substr(invalid)))
      fail("{}: line {} ends in the middle of a character: the file is truncated, get it again",
           path.string(), line_number);
    require(invalid == line.size(),
            "{}: line {} is not valid UTF-8 (byte {} of the line): not a text file, or in another "
            "encoding (iconv converts)",
            path.string(), line_number, invalid + 1);
    require(line.find('\0') == std::string_view::npos,
            "{}: line {} contains a zero byte: not a text file, or one that is damaged",
            path.string(), line_number);
  }
};

StoryReader::StoryReader(const std::filesystem::path& corpus) : impl_(std::make_unique<Impl>()) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(corpus, error);
  require(std::filesystem::exists(status), "cannot open corpus {}: {}", corpus.string(),
          error.message());
  require(std::filesystem::is_regular_file(status), "cannot read corpus {}: not a regular file",
          corpus.string());
  impl_->path = corpus;
  impl_->file.open(corpus, std::ios::binary);
  require(impl_->file.is_open(), "cannot open corpus {}: {}", corpus.string(),
          std::generic_category().message(errno));
  impl_->file_bytes = static_cast<int64_t>(std::filesystem::file_size(corpus));
}

StoryReader::~StoryReader() = default;

bool StoryReader::next(std::string& story) {
  Impl& in = *impl_;
  story.clear();
  while (in.has_line || (in.has_line = in.read_line())) {
    const size_t marker = in.line.find(kMarker);
    story += in.line.substr(0, marker);
    require(story.size() <= kMaxStoryBytes,
            "{}: the story before line {} is longer than {} MiB: are there lines \"{}\" after "
            "each story?",
            in.path.string(), in.line_number, kMaxStoryBytes >> 20, kMarker);
    if (marker == std::string_view::npos) {
      story += '\n';
      in.has_line = false;
      continue;
    }
    in.line.remove_prefix(marker + kMarker.size());
    trim(story);
    if (!story.empty()) return true;
  }
  trim(story);
  return !story.empty();
}

int64_t StoryReader::position() const {
  return impl_->block_end - static_cast<int64_t>(impl_->block.size() - impl_->next_line);
}

int64_t StoryReader::size() const { return impl_->file_bytes; }

}  // namespace lab
