// StoryReader: one story after another from a text file of any size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lab {

/// Reads a corpus in the format of TinyStories: UTF-8 text, each story closed by a line
/// "<|endoftext|>" (the last one may lack it). Keeps one line of the file in memory, never the
/// whole file.
class StoryReader {
 public:
  /// Throws Error if the file is missing or unreadable.
  explicit StoryReader(const std::filesystem::path& corpus);

  /// Moves the next non-empty story, without surrounding white space and marker, into `story`;
  /// false at the end. Throws Error with the line number if the text is not valid UTF-8, or if a
  /// story exceeds 4 MiB (the file has no markers).
  bool next(std::string& story);

  /// Bytes consumed so far, and in total, for progress.
  int64_t position() const { return position_; }
  int64_t size() const { return file_bytes_; }

 private:
  /// Moves `line_` to the next line, without its end; false at the end of the file.
  bool read_line();
  void check_line(bool is_last) const;

  std::string path_;
  std::ifstream file_;
  int64_t file_bytes_ = 0;
  int64_t position_ = 0;

  std::string buffer_;       // room for a line
  std::string_view line_;    // what is left of the current line; part of `buffer_`
  bool has_line_ = false;    // false: `line_` is used up
  int64_t line_number_ = 0;  // of the current line, from 1
};

}  // namespace lab
