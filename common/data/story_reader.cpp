#include "common/data/story_reader.h"

#include <cerrno>
#include <system_error>

#include "common/error.h"
#include "common/io/utf8.h"

namespace lab {
namespace {

constexpr std::string_view kMarker = "<|endoftext|>";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kMaxStoryBytes = size_t{4} << 20;  // a "word" of it takes the tokenizer 1 GB
constexpr size_t kLineRoom = size_t{5} << 20;  // a line may also have markers and other stories

/// Removes white space at both ends, in place.
void trim(std::string& text) {
  constexpr const char* kWhiteSpace = " \t\r\n\v\f";
  text.erase(text.find_last_not_of(kWhiteSpace) + 1);  // npos + 1 is 0: all of it
  text.erase(0, text.find_first_not_of(kWhiteSpace));
}

}  // namespace

StoryReader::StoryReader(const std::filesystem::path& corpus)
    : path_(corpus.string()), buffer_(kLineRoom, '\0') {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(corpus, error);
  require(std::filesystem::exists(status), "cannot open corpus {}: {}", path_, error.message());
  require(std::filesystem::is_regular_file(status), "cannot read corpus {}: not a regular file",
          path_);
  file_.open(corpus, std::ios::binary);
  require(file_.is_open(), "cannot open corpus {}: {}", path_,
          std::generic_category().message(errno));
  file_bytes_ = static_cast<int64_t>(std::filesystem::file_size(corpus));
}

bool StoryReader::next(std::string& story) {
  story.clear();
  while (has_line_ || (has_line_ = read_line())) {
    const size_t marker = line_.find(kMarker);
    story += line_.substr(0, marker);
    require(story.size() <= kMaxStoryBytes,
            "{}: the story before line {} is longer than {} MiB: are there lines \"{}\" after "
            "each story?",
            path_, line_number_, kMaxStoryBytes >> 20, kMarker);
    if (marker == std::string_view::npos) {
      story += '\n';
      has_line_ = false;
      continue;
    }
    line_.remove_prefix(marker + kMarker.size());
    trim(story);
    if (!story.empty()) return true;
  }
  trim(story);
  return !story.empty();
}

bool StoryReader::read_line() {
  file_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  const auto read = static_cast<size_t>(file_.gcount());  // with the '\n'
  require(!file_.bad(), "cannot read {}: {}", path_, std::generic_category().message(errno));
  if (read == 0) return false;
  ++line_number_;
  require(!file_.fail(), "{}: line {} is longer than {} MiB: not a story corpus", path_,
          line_number_, kMaxStoryBytes >> 20);
  position_ += file_.gcount();
  const bool is_last = file_.eof();
  line_ = std::string_view(buffer_).substr(0, is_last ? read : read - 1);
  check_line(is_last);
  if (line_number_ == 1 && line_.starts_with(kByteOrderMark))
    line_.remove_prefix(kByteOrderMark.size());
  if (line_.ends_with('\r')) line_.remove_suffix(1);
  return true;
}

void StoryReader::check_line(bool is_last) const {
  const size_t invalid = find_invalid_utf8(line_);
  if (is_last && is_unfinished_utf8(line_.substr(invalid)))
    fail("{}: line {} ends in the middle of a character: the file is truncated, get it again",
         path_, line_number_);
  require(invalid == line_.size(),
          "{}: line {} is not valid UTF-8 (byte {} of the line): not a text file, or in another "
          "encoding (iconv converts)",
          path_, line_number_, invalid + 1);
  require(line_.find('\0') == std::string_view::npos,
          "{}: line {} contains a zero byte: not a text file, or one that is damaged", path_,
          line_number_);
}

}  // namespace lab
