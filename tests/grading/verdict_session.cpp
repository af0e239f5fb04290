// GoogleTest as the engine under the verdict: our own words instead of its printer.
#include "tests/grading/verdict_session.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "tests/grading/verdict.h"

namespace lab::grading {
namespace {

// Where a failure comes from, written into the place of its file name. Everything else that can
// end a test, such as an exception in the test itself, is the harness's own fault.
constexpr const char* kVerdict = "verdict";
constexpr const char* kHarness = "harness";

VerdictSettings& mutable_settings() {
  static VerdictSettings settings;
  return settings;
}

/// What `stop` throws while a judge is being tried (why_stopped).
struct Stopped {
  std::string message;
};
thread_local bool trying = false;

std::set<std::string>& notes_of_this_test() {
  static std::set<std::string> notes;
  return notes;
}

[[noreturn]] void end_test(const char* origin, const std::string& message) {
  if (trying && origin == kVerdict) throw Stopped{message};
  ADD_FAILURE_AT(origin, 0) << message;
  // GoogleTest's way to leave a test from a function: this failure has been reported already.
  throw testing::AssertionException(
      testing::TestPartResult(testing::TestPartResult::kNonFatalFailure, origin, 0, ""));
}

/// "PaddingIsNoTarget" -> "padding is no target".
std::string in_words(const std::string& name) {
  std::string words;
  for (char c : name) {
    if (std::isupper(static_cast<unsigned char>(c)) && !words.empty()) words += ' ';
    words += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

/// Takes the place of GoogleTest's printer.
class Collector final : public testing::EmptyTestEventListener {
 public:
  Collector(TaskResults& results, std::string enough,
            std::function<void(const TaskResult&)> on_first_failure)
      : results_(results),
        enough_(std::move(enough)),
        on_first_failure_(std::move(on_first_failure)) {}

  void OnTestStart(const testing::TestInfo& test) override {
    test_ = &test;
    TaskResult& result = results_[task_of(test)];
    result.task = task_of(test);
    ++result.tests;
  }

  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (!part.failed()) return;
    TaskResult& result = results_[task_of(*test_)];
    std::string message = part.message();
    if (const std::string prefix = "Failed\n"; message.starts_with(prefix))
      message.erase(0, prefix.size());
    message.erase(message.find_last_not_of('\n') + 1);  // GoogleTest 1.13 and later append one
    const std::string origin = part.file_name() == nullptr ? "" : part.file_name();
    if (!enough_.empty() && message.find(enough_) != std::string::npos)
      GTEST_FLAG_SET(fail_fast, enough_seen_ = true);  // GoogleTest asks after every test
    if (origin == kVerdict)
      result.failures.push_back({in_words(test_->name()), message});
    else
      result.not_graded = fmt::format("{}: {}", in_words(test_->name()), message);
    if (on_first_failure_ && result.graded() && result.failures.size() == 1)
      on_first_failure_(result);
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    results_[task_of(test)].notes.merge(std::exchange(notes_of_this_test(), {}));
  }

  void OnTestSuiteEnd(const testing::TestSuite& /*suite*/) override {
    // It would skip the other suites, too.
    if (std::exchange(enough_seen_, false)) GTEST_FLAG_SET(fail_fast, false);
  }

 private:
  static std::string task_of(const testing::TestInfo& test) {
    const std::string suite = test.test_suite_name();
    return suite.starts_with("Task") ? suite.substr(4) : suite;
  }

  TaskResults& results_;
  std::string enough_;
  bool enough_seen_ = false;
  std::function<void(const TaskResult&)> on_first_failure_;
  // Not asked from GoogleTest in OnTestPartResult: it holds the lock that the answer needs.
  const testing::TestInfo* test_ = nullptr;
};

}  // namespace

std::filesystem::path VerdictSettings::rank_program() const {
  const char* device = implementation.ends_with("_gpu") ? "_gpu" : "";
  return programs / fmt::format("lab{}_ranks{}", points.number, device);
}

std::filesystem::path VerdictSettings::implementation_file() const {
  if (implementation.find('/') != std::string::npos) return implementation;
  return programs.parent_path() / "implementations" / fmt::format("lab{}", points.number) /
         (implementation + ".so");
}

std::filesystem::path VerdictSettings::solution_file() const {
  return programs.parent_path() / "implementations" / fmt::format("lab{}", points.number) /
         "solution.so";
}

const VerdictSettings& settings() { return mutable_settings(); }
void set_settings(VerdictSettings settings) { mutable_settings() = std::move(settings); }

TaskResults run_tests(const std::vector<std::string>& tasks, const std::string& enough,
                      const std::function<void(const TaskResult&)>& on_first_failure) {
  std::string filter;
  for (const std::string& task : tasks)
    filter += fmt::format("{}Task{}{}", filter.empty() ? "" : ":", task,
                          task.find('.') == std::string::npos ? ".*" : "");
  if (!filter.empty()) GTEST_FLAG_SET(filter, filter);
  TaskResults results;
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  Collector collector(results, enough, on_first_failure);
  listeners.Append(&collector);
  // The return value says no more than `results`.
  [[maybe_unused]] const int failed = RUN_ALL_TESTS();
  listeners.Release(&collector);
  for (const std::string& task : tasks)
    if (const std::string id = task.substr(0, task.find('.')); !results.contains(id))
      results[id] = {.task = id, .not_graded = fmt::format("the verdict has no test {}", task)};
  return results;
}

void stop(const std::string& message) { end_test(kVerdict, message); }

void note(const std::string& message) { notes_of_this_test().insert(message); }

void break_off(const std::string& message) { end_test(kHarness, message); }

std::string why_stopped(const std::function<void()>& judge) {
  const bool before = std::exchange(trying, true);
  std::string message;
  try {
    judge();
  } catch (const Stopped& stopped) {
    message = stopped.message;
  } catch (...) {
    trying = before;
    throw;
  }
  trying = before;
  return message;
}

uint64_t scenario_seed() {
  const char* seed = std::getenv("LAB_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

}  // namespace lab::grading
