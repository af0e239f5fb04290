// ProgressLine: shows the progress of training in the terminal.
#include "common/run/metrics/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "common/error.h"

namespace lab {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";

}  // namespace

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::lround(std::max(seconds, 0.0)));
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

std::string format_progress(const StepRecord& record, int64_t total_steps, double seconds_left) {
  return fmt::format("step {}/{}  loss {:.3f}  {} tokens/s  ETA {}", record.step, total_steps,
                     record.loss, format_count(std::llround(record.tokens_per_second)),
                     format_duration(seconds_left));
}

ProgressLine::ProgressLine(int64_t first_step, int64_t total_steps, std::FILE* out)
    : first_step_(first_step),
      total_steps_(total_steps),
      out_(out),
      terminal_(isatty(fileno(out)) == 1) {}

ProgressLine::~ProgressLine() { finish(); }

void ProgressLine::update(const StepRecord& record) {
  using std::chrono::duration;
  constexpr duration<double> kTerminalInterval(0.1);
  constexpr duration<double> kPlainInterval(5.0);

  const auto now = Clock::now();
  const auto tenth = [&](int64_t step) { return step * 10 / total_steps_; };
  const bool milestone = record.step == first_step_ || record.step == total_steps_ ||
                         (!terminal_ && tenth(record.step) != tenth(record.step - 1));
  if (!milestone && now - last_shown_ < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  last_shown_ = now;

  const double elapsed = duration<double>(now - start_).count();
  const auto done = static_cast<double>(record.step - first_step_ + 1);
  const auto left = static_cast<double>(total_steps_ - record.step);
  const std::string text = format_progress(record, total_steps_, elapsed / done * left);
  if (terminal_)
    fmt::print(out_, "{}{}", kEraseLine, text);
  else
    fmt::print(out_, "{}\n", text);
  line_open_ = terminal_;
  std::fflush(out_);
}

void ProgressLine::note(const std::string& text) {
  fmt::print(out_, "{}{}\n", line_open_ ? kEraseLine : "", text);
  line_open_ = false;
  std::fflush(out_);
}

void ProgressLine::finish() {
  if (line_open_) fmt::print(out_, "\n");
  line_open_ = false;
  std::fflush(out_);
}

}  // namespace lab
