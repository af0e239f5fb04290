// PrefixOutput: one output of one rank, on its way to the terminal.
#pragma once

#include <set>
#include <string>

#include "common/io/descriptor.h"

namespace lab {

/// Writes all of the text, without a signal if SIGPIPE is blocked. Returns 0, or the error that
/// loses the rest of the text: EPIPE if nobody reads the target any more, ENOSPC if a disk is full.
/// Gives up, with 0, once `stop` is readable while the target accepts nothing: a paused terminal
/// must not hold up Ctrl-C.
int write_all(int target, const std::string& text, int stop);

/// A pipe. What a process writes into it comes out line by line, with a prefix.
class PrefixOutput {
 public:
  /// Lines "error: ..." that the processes of a job have written so far.
  using Errors = std::set<std::string>;

  /// `target`: a descriptor that remains the caller's. `errors` must outlive this object: an error
  /// that all ranks have in common, such as a damaged checkpoint, comes out once. Throws Error if
  /// no pipe can be made.
  PrefixOutput(std::string prefix, int target, Errors& errors);

  /// For the process; close it once the process has it.
  int writing_end() const { return writing_.get(); }
  void close_writing_end() { writing_ = Descriptor(); }
  /// To poll; -1 once all of the output has arrived.
  int reading_end() const { return reading_.get(); }

  /// Passes on the complete lines that are there, at most a megabyte, without waiting for more.
  /// Returns what write_all does, and drops lines where it gives up.
  int pass_on(int stop);
  /// The same, plus a last line without a line break, when the process has ended.
  int finish(int stop);

 private:
  int write_lines(size_t end, int stop);

  std::string prefix_;
  int target_;
  Errors& errors_;
  Descriptor reading_;
  Descriptor writing_;
  std::string pending_;
};

}  // namespace lab
