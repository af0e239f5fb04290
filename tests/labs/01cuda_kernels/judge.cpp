// See judge.h.
#include "tests/labs/01cuda_kernels/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/grading/verdict.h"
#include "labs/01cuda_kernels/kernels.h"
#include "tests/labs/01cuda_kernels/findings.h"
#include "tests/labs/01cuda_kernels/untouched.h"

namespace lab01cuda {
namespace {

using lab::grading::difference;
using lab::grading::Expected;
using lab::grading::Parcel;
using lab::grading::stop;

/// Whether `got` is what the mistake gives.
bool is_mistake(const LengthResult& result, size_t mistake) {
  Expected wrong = result.expected;
  wrong.values = result.expected.mistakes[mistake].values;
  wrong.mistakes.clear();
  return difference(result.got, wrong).empty();
}

bool is_untouched(const LengthResult& result) {
  return std::ranges::any_of(result.got, [](double value) { return value == double{kUntouched}; });
}

/// "1, 31, 32".
std::string listed(const std::vector<int64_t>& lengths) {
  std::string text;
  for (int64_t length : lengths) text += fmt::format("{}{}", text.empty() ? "" : ", ", length);
  return text;
}

/// Which lengths are wrong, in words that lead to the mistake. `wrong` and the rest of all lengths
/// are both not empty.
std::string pattern(const std::vector<int64_t>& right, const std::vector<int64_t>& wrong) {
  const auto wrong_are_those = [&](const std::function<bool(int64_t)>& condition) {
    return std::ranges::all_of(wrong, condition) && std::ranges::none_of(right, condition);
  };
  if (wrong_are_those([](int64_t n) { return n % kThreads != 0; }))
    return fmt::format(
        "rows whose length is no multiple of the block ({} threads) are wrong, the others right: "
        "what do threads beyond the end of the row add, and do all columns of the last, shorter "
        "round take part?",
        kThreads);
  if (wrong_are_those([](int64_t n) { return n > kThreads && n % kThreads != 0; }))
    return fmt::format(
        "rows of {} columns are right, longer ones that are no multiple of it wrong: do all "
        "columns of the last, shorter round take part?",
        kThreads);
  if (wrong_are_those([](int64_t n) { return n > kThreads; }))
    return fmt::format(
        "rows longer than the block ({} threads) are wrong, the others right: a thread has the "
        "columns threadIdx.x, threadIdx.x + {}, threadIdx.x + {}, ...",
        kThreads, kThreads, 2 * kThreads);
  if (wrong_are_those([](int64_t n) { return n > 32; }))
    return "rows longer than a warp (32 columns) are wrong, the others right: are the partial "
           "results of all warps brought together, and in all threads?";
  if (wrong_are_those([](int64_t n) { return n > 1; }))
    return "rows of one column are right, longer ones wrong: each thread has seen a part of its "
           "row "
           "only; are the parts brought together?";
  return fmt::format("rows of {} columns are wrong, of {} right", listed(wrong), listed(right));
}

/// `launches`: how many kernels ran, and of how many calls.
std::string explain_launches(const std::vector<double>& launches) {
  return fmt::format(
      "{}\n{} kernels, {} calls",
      launches[0] > launches[1]
          ? "a call started more than one kernel: all belongs into one, so that each number is "
            "fetched from memory as rarely as possible"
          : "a call started no kernel: the numbers lie in the memory of the GPU and are worked out "
            "there, by a kernel, not by the host",
      launches[0], launches[1]);
}

}  // namespace

Parcel run_kernel(const std::string& scenario, const Parcel& input) {
  Parcel result = lab::grading::student(scenario, input);
  if (result.has("finding")) stop(explain_finding(result.text("finding")));
  if (result.has("fence"))
    stop(
        fmt::format("memory beside the array {} was overwritten: compare each index with the "
                    "length before writing",
                    result.text("fence")));
  if (result.has("unsteady"))
    stop(
        fmt::format("the result depends on which thread comes first: is a sum made in the order "
                    "of arrival (atomicAdd), or does a thread read what another one writes?\n{}: "
                    "other bits",
                    result.text("unsteady")));
  if (result.has("launches")) stop(explain_launches(result.numbers("launches")));
  return result;
}

void expect_shared_work(const Parcel& result, const std::string& suffix, const Share& share) {
  if (!result.has("most_read" + suffix)) return;
  const double most = result.number("most_read" + suffix);
  if (most == 0)
    stop("the kernel reads no number at all: the work is the kernel's, not the host's");
  if (most > share.limit)
    stop(fmt::format("{}\na thread read {} numbers, {}; expected are at most {}", share.lesson,
                     most, share.of_what, share.limit));
}

void expect_shared_row(const Parcel& result, const std::string& suffix, int64_t columns) {
  if (columns < kLongRow) return;
  expect_shared_work(
      result, suffix,
      {.limit = static_cast<double>(columns / 4),
       .lesson = fmt::format("one thread goes over a whole row: its work is to be shared by the "
                             "threads of the block. Give each the columns threadIdx.x, "
                             "threadIdx.x + {}, ..., and bring their results together",
                             kThreads),
       .of_what = fmt::format("its row has {}", columns)});
}

void expect_lengths(const std::vector<LengthResult>& results) {
  std::vector<int64_t> right;
  std::vector<int64_t> wrong;
  const LengthResult* example = nullptr;
  for (const LengthResult& result : results) {
    const bool is_right = difference(result.got, result.expected).empty();
    (is_right ? right : wrong).push_back(result.length);
    if (!is_right && example == nullptr) example = &result;
  }
  if (example == nullptr) return;

  Expected expected = example->expected;
  expected.mistakes.clear();  // one that fits a single length says nothing
  const std::string details =
      fmt::format("row length {}: {}", example->length, difference(example->got, expected));
  for (size_t i = 0; i < example->expected.mistakes.size(); ++i)
    if (std::ranges::all_of(results, [i](const LengthResult& r) { return is_mistake(r, i); }))
      stop(fmt::format("{}\n{}", example->expected.mistakes[i].message, details));
  if (is_untouched(*example))
    stop(fmt::format("{}: some were never written, with row length {}", expected.what,
                     example->length));
  if (right.empty()) stop(details);
  const bool finite = std::ranges::all_of(example->got, [](double v) { return std::isfinite(v); });
  stop(finite ? fmt::format("{}\n{}", pattern(right, wrong), details)
              : fmt::format("{}\n{}", details, pattern(right, wrong)));
}

}  // namespace lab01cuda
