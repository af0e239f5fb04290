// ProgressLine: shows the progress of training in the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/run/metrics/metrics.h"

namespace lab {

/// "step 120/800  loss 3.412  4,812 tokens/s  ETA 1:42".
std::string format_progress(const StepRecord& record, int64_t total_steps, double seconds_left);

/// On a terminal, one line that is updated in place, with others below it if the program has more
/// to show; elsewhere (a file, a pipe), a line every 5 seconds or 10 % of the steps.
class ProgressLine {
 public:
  /// `first_step`: the one that this process begins with, for the ETA.
  ProgressLine(int64_t first_step, int64_t total_steps, std::FILE* out = stdout);
  /// Ends the line that is being updated, if there is one.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const StepRecord& record);
  /// On a terminal: these lines below, in place of those before. What does not fit is cut.
  void show_below(std::vector<std::string> lines);
  /// Prints a permanent line.
  void note(const std::string& text);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void draw();
  void erase();

  int64_t first_step_;
  int64_t total_steps_;
  std::FILE* out_;
  bool terminal_;
  std::string line_;
  std::vector<std::string> below_;
  int open_lines_ = 0;  // on the terminal, to be erased; the cursor is at the end of the last one
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_shown_ = start_;
};

}  // namespace lab
