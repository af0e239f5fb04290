#include "common/run/metrics/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/error.h"
#include "common/format.h"
#include "common/io/terminal.h"

namespace lab {
namespace {

using std::chrono::duration;

constexpr duration<double> kTerminalInterval(0.1);

}  // namespace

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
  constexpr duration<double> kPlainInterval(5.0);

  const auto now = Clock::now();
  const auto tenth = [&](int64_t step) { return step * 10 / total_steps_; };
  const bool milestone = record.step == first_step_ || record.step == total_steps_ ||
                         (!terminal_ && tenth(record.step) != tenth(record.step - 1));
  const bool due =
      milestone || now - last_shown_ >= (terminal_ ? kTerminalInterval : kPlainInterval);
  if (!due && !terminal_) return;

  const double elapsed = duration<double>(now - start_).count();
  const auto done = static_cast<double>(record.step - first_step_ + 1);
  const auto left = static_cast<double>(total_steps_ - record.step);
  line_ = format_progress(record, total_steps_, elapsed / done * left);
  if (!due) return;  // whoever draws next shows it
  last_shown_ = now;
  if (terminal_)
    draw();
  else
    print_if_possible(out_, "{}\n", line_);
  std::fflush(out_);
}

void ProgressLine::show_below(std::vector<std::string> lines) {
  if (!terminal_ || Clock::now() - last_shown_ < kTerminalInterval) return;
  last_shown_ = Clock::now();
  below_ = std::move(lines);
  draw();
  std::fflush(out_);
}

void ProgressLine::note(const std::string& text) {
  erase();
  print_if_possible(out_, "{}\n", text);
  if (!below_.empty()) draw();
  std::fflush(out_);
}

void ProgressLine::finish() {
  if (open_lines_ > 0) print_if_possible(out_, "\n");
  open_lines_ = 0;
  below_.clear();
  std::fflush(out_);
}

void ProgressLine::draw() {
  const TerminalSize size = terminal_size(fileno(out_));
  std::vector<std::string> lines = below_;
  if (!line_.empty()) lines.insert(lines.begin(), line_);
  // A line that wraps, or leaves the screen at the top, could not be erased.
  lines.resize(std::min(lines.size(), static_cast<size_t>(std::max(size.rows - 1, 1))));
  erase();
  for (const std::string& line : lines) {
    const auto width = static_cast<size_t>(std::max(size.columns - 1, 1));
    print_if_possible(out_, "{}{}", open_lines_ > 0 ? "\n" : "", line.substr(0, width));
    ++open_lines_;
  }
}

void ProgressLine::erase() {
  if (open_lines_ > 0) print_if_possible(out_, "\r");
  if (open_lines_ > 1) print_if_possible(out_, "\x1b[{}A", open_lines_ - 1);
  if (open_lines_ > 0) print_if_possible(out_, "\x1b[J");
  open_lines_ = 0;
}

}  // namespace lab
