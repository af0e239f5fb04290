// Putting the end of a rank into words.
#include "tests/grading/rank_result.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <utility>

#include "common/error.h"
#include "tests/grading/quoted.h"
#include "tests/grading/rank_files.h"
#include "tests/grading/rank_main.h"

namespace lab::grading {
namespace {

constexpr const char* kMargin = "  | ";  // before further lines of a text from a rank's own code

std::string signal_in_words(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "segmentation fault (SIGSEGV): an index outside its array, a bad pointer, an empty "
             "std::optional, or something erased from a container inside a loop over it?";
    case SIGABRT:
      return "aborted (SIGABRT): a failed assertion, damaged memory, or an exception that left a "
             "parallel loop?";
    case SIGFPE:
      return "arithmetic error (SIGFPE): an integer divided by zero?";
    case SIGBUS:
      return "bus error (SIGBUS)";
    case SIGILL:
      return "illegal instruction (SIGILL): a function that returns nothing although it should?";
    case SIGKILL:
      return "killed (SIGKILL): was the machine out of memory?";
    default:
      return fmt::format("signal {}", signal);
  }
}

/// The line in which AddressSanitizer, ThreadSanitizer or UndefinedBehaviorSanitizer says what it
/// found; empty if none of them ended the program.
std::string sanitizer_summary(const std::string& output) {
  const size_t begin = output.rfind("SUMMARY: ");
  return begin == std::string::npos ? "" : output.substr(begin, output.find('\n', begin) - begin);
}

/// Whether this is what lab::not_implemented() says, and nothing else.
bool is_todo(const std::string& text) {
  return text.starts_with("task ") && text.find(" is not written yet: ") != std::string::npos &&
         text.ends_with(")") && quoted(text, "") == text && text.find('\n') == std::string::npos;
}

/// Of a sequence of calls, what those before the one that crashed had returned.
Parcel returned_until_crash(const std::filesystem::path& file) {
  try {
    return std::filesystem::exists(file) ? Parcel::read(file) : Parcel();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

void describe_end(const ChildProcess& child, const std::filesystem::path& file,
                  RankResult& result) {
  const int status = child.wait_status();
  if (WIFSIGNALED(status)) {
    result.outcome = Outcome::kCrash;
    result.message =
        fmt::format("rank {} crashed: {}\nThe debug preset finds the line: see docs/debugging.md",
                    result.rank, signal_in_words(WTERMSIG(status)));
    result.result = returned_until_crash(file);
    return;
  }
  const int code = WEXITSTATUS(status);
  if (const std::string summary = sanitizer_summary(child.output());
      code != 0 && !summary.empty()) {
    result.outcome = Outcome::kCrash;
    result.message = fmt::format("rank {} was ended by a sanitizer: {}", result.rank, summary);
    return;
  }
  require(code != kParcelFailed || std::filesystem::exists(in_scenario_marker(file)),
          "rank {} cannot read its input or write its result: {}", result.rank, child.output());
  result.outcome = Outcome::kExit;
  if (!std::filesystem::exists(file)) {
    result.message = fmt::format(
        "rank {} ended with exit code {} before it had returned anything: does the "
        "code call exit?",
        result.rank, code);
    return;
  }
  try {
    result.result = Parcel::read(file);
    const std::string outcome = result.result.text(kOutcomeEntry);
    if (outcome == kNotImplementedOutcome && is_todo(result.result.text(kMessageEntry))) {
      result.outcome = Outcome::kNotImplemented;
      result.message = result.result.text(kMessageEntry);
    } else if (outcome == kBrokenOffOutcome && result.result.text(kMessageEntry).empty()) {
      // Written between two calls (rank_main.cpp): the next one has not returned.
      result.message =
          fmt::format("rank {} ended with exit code {} in a later call: does the code call exit?",
                      result.rank, code);
    } else if (outcome == kNotImplementedOutcome || outcome == kErrorOutcome ||
               outcome == kBrokenOffOutcome) {
      result.outcome = outcome == kBrokenOffOutcome ? Outcome::kBrokenOff : Outcome::kError;
      result.message = fmt::format("rank {} stopped with an error: {}", result.rank,
                                   quoted(result.result.text(kMessageEntry), kMargin));
    } else if (outcome == kDiagnosedOutcome) {
      result.outcome = Outcome::kDiagnosed;
      result.message = result.result.text(kMessageEntry);
    } else if (code != 0) {
      result.message = fmt::format("rank {} ended with exit code {}", result.rank, code);
    } else {
      result.outcome = Outcome::kReturned;
    }
  } catch (const std::exception&) {  // its message names a temporary file
    result.message = fmt::format(
        "rank {} ended with exit code {} and left a damaged result: does the code call exit, or "
        "write files?",
        result.rank, code);
  }
}

bool computed_all_the_time(const RankResult& result, double deadline_s) {
  return result.cpu_s > 0.5 * deadline_s;
}

void tell_deadline(double deadline_s, RankResult& result) {
  result.message = fmt::format(
      "rank {} was not done after {:g} s and was ended; it had used {:.1f} s of processor time: {}",
      result.rank, deadline_s, result.cpu_s,
      computed_all_the_time(result, deadline_s) ? "a loop that never ends, or "
                                                  "far more work than is needed?"
                                                : "does it wait for something that never comes?");
}

const RankResult* first_failure(const std::vector<RankResult>& results) {
  const auto weight = [](const RankResult& result) {
    const bool is_cause = result.outcome == Outcome::kNotImplemented ||
                          result.outcome == Outcome::kCrash || result.outcome == Outcome::kExit;
    return std::pair(is_cause ? Outcome::kReturned : result.outcome, result.ended_after_s);
  };
  const RankResult* failure = nullptr;
  for (const RankResult& result : results)
    if (result.outcome != Outcome::kReturned &&
        (failure == nullptr || weight(result) < weight(*failure)))
      failure = &result;
  return failure;
}

}  // namespace lab::grading
