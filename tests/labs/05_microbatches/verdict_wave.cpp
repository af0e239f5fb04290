// Running and judging one wave.
#include "tests/labs/05_microbatches/verdict_wave.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "common/tensor/error.h"
#include "tests/labs/05_microbatches/verdict_plans.h"
#include "tests/labs/05_microbatches/verdict_wave_numbers.h"

namespace lab05 {

using lab::grading::Parcel;

namespace {

using Maker = std::vector<lab::TokenBatch> (*)(int count);

Maker make(Microbatches differ_in) {
  switch (differ_in) {
    case Microbatches::kAlike:
      return full_microbatches;
    case Microbatches::kTargets:
      return unequal_microbatches;
    case Microbatches::kShapes:
      return shaped_microbatches;
  }
  lab::fail("no such microbatches");
}

/// The most bytes of activations in flight that a list of actions implies.
double most_bytes(const lab::ActionList& actions, const Numbers& bytes) {
  double now = 0;
  double most = 0;
  for (const lab::Action& action : actions) {
    const double own = bytes[static_cast<size_t>(action.microbatch)];
    if (action.kind == lab::ActionKind::kForward) now += own;
    if (action.kind == lab::ActionKind::kBackward) now -= own;
    most = std::max(most, now);
  }
  return most;
}

std::string numbers_in_words(const Numbers& numbers) {
  std::string words;
  for (double number : numbers) words += fmt::format("{}{}", words.empty() ? "" : " ", number);
  return words.empty() ? "none" : words;
}

/// What is wrong with the course of a wave, before any number is looked at.
std::string wrong_course(const std::vector<Parcel>& results, const WaveCase& c) {
  const std::string messages = wrong_messages(results, c);
  return messages.empty() ? wrong_calls(results, c) : messages;
}

}  // namespace

std::vector<lab::TokenBatch> WaveCase::microbatches() const {
  return make(differ_in)(schedule.microbatches);
}

Parts WaveCase::parts() const {
  constexpr int kMost = 8;
  const auto count = static_cast<size_t>(schedule.microbatches);
  lab::require(count <= kMost, "a wave of the tests has at most {} microbatches", kMost);
  static std::map<Microbatches, Parts> all;
  const auto known = all.try_emplace(differ_in, make(differ_in)(kMost), kStepTargets).first;
  return known->second.first(count);
}

std::vector<Parcel> WaveCase::inputs() const {
  std::vector<Parcel> all(ranks());
  for (size_t r = 0; r < ranks(); ++r) {
    all[r].set_text("schedule", to_text(schedule));
    set_microbatches(all[r], tokens_for(r, ranks(), microbatches()));
    all[r].set("total", static_cast<double>(kStepTargets));
    all[r].set("leftover", leftover);
  }
  return all;
}

std::vector<Parcel> run_wave(const WaveCase& c, const lab::grading::GroupOptions& options) {
  return lab::grading::student_group("wave", c.inputs(), options);
}

std::string wrong_calls(const std::vector<Parcel>& results, const WaveCase& c) {
  for (size_t r = 0; r + 1 < results.size(); ++r)
    if (const size_t calls = results[r].numbers("order").size(); calls > 0)
      return fmt::format("rank {} calls loss {} times: only the last stage has logits", r, calls);
  Numbers got = results.back().numbers("order");
  std::ranges::sort(got);  // a loss may be computed any time between forward and backward
  Numbers right(static_cast<size_t>(c.schedule.microbatches));
  std::iota(right.begin(), right.end(), 0.0);
  const bool copies = !got.empty() && got[0] < 0;  // of which nobody knows whose they are
  if (copies ? got.size() == right.size() : got == right) return "";
  return fmt::format(
      "rank {}, the last stage, calls loss for the microbatches {}; it should be "
      "called once for each: {}",
      results.size() - 1, numbers_in_words(got), numbers_in_words(right));
}

std::string wrong_memory(const std::vector<Parcel>& results, const WaveCase& c) {
  for (size_t r = 0; r < results.size(); ++r) {
    const double most = most_bytes(c.schedule.stages[r], results[r].numbers("bytes_of_each"));
    const double peak = results[r].number("peak_bytes");
    if (peak != most)
      return fmt::format(
          "rank {} keeps up to {} bytes of activations; its actions have {} microbatches in flight "
          "at most, {} bytes: is every pass done in its place?",
          r, peak, most_in_flight(c.schedule.stages[r]), most);
    if (results[r].number("in_flight_bytes") != 0)
      return fmt::format(
          "rank {} still keeps {} bytes of activations: a forward without its "
          "backward",
          r, results[r].number("in_flight_bytes"));
  }
  return "";
}

void expect_wave(const WaveCase& c, const lab::grading::GroupOptions& options) {
  const std::vector<Parcel> results = run_wave(c, options);
  if (const std::string wrong = wrong_course(results, c); !wrong.empty()) lab::grading::stop(wrong);
  expect_numbers(results, c);
  if (const std::string wrong = wrong_memory(results, c); !wrong.empty()) lab::grading::stop(wrong);
  if (const std::string wrong = wrong_waits(results, c); !wrong.empty()) lab::grading::stop(wrong);
}

void expect_wave_like(const WaveCase& simple, const WaveCase& c, const std::string& why,
                      const lab::grading::GroupOptions& options) {
  expect_wave(simple, options);
  const std::vector<Parcel> results = run_wave(c, options);
  if (const std::string wrong = wrong_course(results, c); !wrong.empty()) lab::grading::stop(wrong);
  if (const std::string wrong = wrong_gradients(results, c); !wrong.empty())
    lab::grading::stop(why + "\n" + wrong);
}

}  // namespace lab05
