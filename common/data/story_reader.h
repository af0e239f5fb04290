// StoryReader: one story after another from a text file of any size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace lab {

/// Reads a corpus in the format of TinyStories: UTF-8 text, each story closed by a line
/// "<|endoftext|>" (the last one may lack it). Keeps one block of the file in memory, never the
/// whole file.
class StoryReader {
 public:
  /// Throws Error if the file is missing or unreadable.
  explicit StoryReader(const std::filesystem::path& corpus);
  ~StoryReader();

  /// Moves the next non-empty story, without surrounding white space and marker, into `story`;
  /// false at the end. Throws Error with the line number if the text is not valid UTF-8, or if a
  /// story exceeds 4 MiB (the file has no markers).
  bool next(std::string& story);

  /// Bytes consumed so far, and in total, for progress.
  int64_t position() const;
  int64_t size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
