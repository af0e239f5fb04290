// GoogleTest as the engine under the verdict: our own words instead of its printer.
#include "common/grading/verdict_session.h"

#include <gtest/gtest.h>

#include <cctype>

#include "common/grading/quoted.h"
#include "common/grading/rank_harness.h"
#include "common/grading/rank_main.h"
#include "common/grading/verdict.h"
#include "common/tensor/error.h"

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

[[noreturn]] void end_test(const char* origin, const std::string& message) {
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

/// What a program printed; of long output the end.
std::string printed(const RankResult& rank) {
  if (rank.output.empty()) return "";
  constexpr size_t kShown = 2000;
  const bool cut = rank.output.size() > kShown;
  const std::string shown =
      cut ? "..." + rank.output.substr(rank.output.size() - kShown) : rank.output;
  const std::string margin = fmt::format("rank {} printed | ", rank.rank);
  return "\n" + margin + quoted(shown, margin);
}

/// Which tasks have hung: their other tests need not wait for the deadline again.
std::map<std::string, std::string>& deadline_messages() {
  static std::map<std::string, std::string> messages;
  return messages;
}

std::string current_suite() {
  return testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
}

std::vector<RankResult> run(const RankJob& job) {
  try {
    return run_ranks_patiently(job);
  } catch (const std::exception& error) {
    end_test(kHarness, error.what());
  }
}

std::vector<Parcel> results_of(std::vector<RankResult> ranks) {
  std::vector<Parcel> results;
  for (RankResult& rank : ranks) results.push_back(std::move(rank.result));
  return results;
}

std::filesystem::path program_with(Functions functions) {
  switch (functions) {
    case Functions::kOwn:
      break;
    case Functions::kGiven:
      return settings().rank_program("_given");
    case Functions::kPartlyGiven:
      return settings().rank_program("_partly_given");
  }
  return settings().rank_program();
}

RankJob group_job(const std::filesystem::path& program, const std::string& scenario,
                  const std::vector<Parcel>& inputs, const GroupOptions& options) {
  return {.program = program,
          .scenario = scenario,
          .inputs = inputs,
          .deadline_s = options.deadline_s,
          .network = options.network,
          .simulation = options.simulation};
}

/// The results of a job of the implementation that is judged; ends the test if there are none.
std::vector<Parcel> judged_results(const RankJob& job) {
  const auto hung = deadline_messages().find(current_suite());
  if (hung != deadline_messages().end()) stop(hung->second);
  std::vector<RankResult> ranks = run(job);
  if (const RankResult* failure = first_failure(ranks)) {
    const std::string message = failure->message + printed(*failure);
    if (failure->outcome == Outcome::kDeadline) deadline_messages()[current_suite()] = message;
    stop(message);
  }
  return results_of(std::move(ranks));
}

std::vector<Parcel> reference_results(const RankJob& job) {
  std::vector<RankResult> ranks = run(job);
  if (const RankResult* failure = first_failure(ranks))
    end_test(kHarness, "the reference failed: " + failure->message + printed(*failure));
  return results_of(std::move(ranks));
}

/// Takes the place of GoogleTest's printer.
class Collector final : public testing::EmptyTestEventListener {
 public:
  Collector(std::map<std::string, TaskResult>& results, std::string enough)
      : results_(results), enough_(std::move(enough)) {}

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
      GTEST_FLAG_SET(fail_fast, true);  // GoogleTest asks behind every test
    if (origin == kVerdict)
      result.failures.push_back({in_words(test_->name()), message});
    else
      result.not_graded = fmt::format("{}: {}", in_words(test_->name()), message);
  }

  void OnTestSuiteEnd(const testing::TestSuite& /*suite*/) override {
    GTEST_FLAG_SET(fail_fast, false);  // it would skip the other suites, too
  }

 private:
  static std::string task_of(const testing::TestInfo& test) {
    const std::string suite = test.test_suite_name();
    return suite.starts_with("Task") ? suite.substr(4) : suite;
  }

  std::map<std::string, TaskResult>& results_;
  std::string enough_;
  // Not asked from GoogleTest in OnTestPartResult: it holds the lock that the answer needs.
  const testing::TestInfo* test_ = nullptr;
};

}  // namespace

std::filesystem::path VerdictSettings::rank_program(const std::string& variant) const {
  return programs / fmt::format("lab{}_rank_{}{}", points.number, implementation, variant);
}

std::filesystem::path VerdictSettings::solution_program() const {
  return programs / fmt::format("lab{}_rank_solution", points.number);
}

const VerdictSettings& settings() { return mutable_settings(); }
void set_settings(VerdictSettings settings) { mutable_settings() = std::move(settings); }

std::map<std::string, TaskResult> run_tests(const std::vector<std::string>& tasks,
                                            const std::string& enough) {
  std::string filter;
  for (const std::string& task : tasks)
    filter += fmt::format("{}Task{}.*", filter.empty() ? "" : ":", task);
  if (!filter.empty()) GTEST_FLAG_SET(filter, filter);
  std::map<std::string, TaskResult> results;
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Collector(results, enough));
  // The return value says no more than `results`.
  [[maybe_unused]] const int failed = RUN_ALL_TESTS();
  for (const std::string& task : tasks)
    if (!results.contains(task))
      results[task] = {.task = task, .not_graded = "the verdict has no test of this task"};
  return results;
}

void stop(const std::string& message) { end_test(kVerdict, message); }

void expect(const std::vector<double>& got, const Expected& expected) {
  const std::string message = difference(got, expected);
  if (!message.empty()) stop(message);
}

void expect(double got, const Expected& expected) { expect(std::vector{got}, expected); }

std::vector<Parcel> student(const std::string& scenario, const std::vector<Parcel>& inputs,
                            Functions functions) {
  return judged_results(
      {.program = program_with(functions), .scenario = scenario, .inputs = inputs});
}

Parcel student(const std::string& scenario, const Parcel& input, Functions functions) {
  return student(scenario, std::vector{input}, functions)[0];
}

std::vector<Parcel> student_group(const std::string& scenario, const std::vector<Parcel>& inputs,
                                  const GroupOptions& options) {
  return judged_results(group_job(program_with(options.functions), scenario, inputs, options));
}

Parcel reference(const std::string& scenario, const Parcel& input) {
  return reference_results(
      {.program = settings().solution_program(), .scenario = scenario, .inputs = {input}})[0];
}

std::vector<Parcel> reference_group(const std::string& scenario, const std::vector<Parcel>& inputs,
                                    const GroupOptions& options) {
  return reference_results(group_job(settings().solution_program(), scenario, inputs, options));
}

Traffic traffic_of(const Parcel& result, OpKind kind) {
  const std::vector<double> numbers = result.numbers(traffic_entry(kind));
  return {.operations = static_cast<uint64_t>(numbers.at(0)),
          .bytes = static_cast<uint64_t>(numbers.at(1))};
}

}  // namespace lab::grading
