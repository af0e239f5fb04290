// PrefixOutput: one output of one rank, on its way to the terminal.
#pragma once

#include <string>

namespace lab {

/// Writes all of the text, without a signal if SIGPIPE is blocked. False if nobody reads the target
/// any more. Gives up as soon as `stop` is readable while the target takes no more: a terminal that
/// is held must not keep Ctrl-C waiting.
bool write_all(int target, const std::string& text, int stop);

/// A pipe. What a process writes into it comes out, line by line, behind a prefix.
class PrefixOutput {
 public:
  /// `target`: a descriptor that stays the caller's. Throws Error if there can be no pipe.
  PrefixOutput(std::string prefix, int target);
  ~PrefixOutput();
  PrefixOutput(const PrefixOutput&) = delete;
  PrefixOutput& operator=(const PrefixOutput&) = delete;

  /// For the process; to be closed once it has it.
  int writing_end() const { return writing_; }
  void close_writing_end();
  /// To poll; -1 once all of it has come.
  int reading_end() const { return reading_; }

  /// Passes on the whole lines that are there, a megabyte at most, without waiting for more. False
  /// if nobody reads the target any more. Drops lines where write_all gives up.
  bool pass_on(int stop);
  /// The same, and a last line that has no end, when the process is gone.
  bool finish(int stop);

 private:
  bool write_lines(size_t end, int stop);

  std::string prefix_;
  int target_;
  int reading_ = -1;
  int writing_ = -1;
  std::string pending_;
};

}  // namespace lab
