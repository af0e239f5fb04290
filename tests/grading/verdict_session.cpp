// GoogleTest as the engine under the verdict: our own words instead of its printer.
#include "tests/grading/verdict_session.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "common/comm/diagnosis/describe.h"
#include "common/error.h"
#include "tests/grading/quoted.h"
#include "tests/grading/rank_harness.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/step_comparison.h"
#include "tests/grading/training_rank.h"
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

/// What `stop` throws while a judge is being tried.
struct Stopped {
  std::string message;
};
thread_local bool trying = false;

/// Why `judge` ends the test as failed; empty if it does not.
std::string tried(const std::function<void()>& judge) {
  trying = true;
  std::string message;
  try {
    judge();
  } catch (const Stopped& stopped) {
    message = stopped.message;
  } catch (...) {
    trying = false;
    throw;
  }
  trying = false;
  return message;
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

std::string right_ranks_in_words(const std::vector<size_t>& ranks) {
  return ranks.empty() ? "" : fmt::format("\nright on rank {}", fmt::join(ranks, ", "));
}

RankJob job_of(const std::vector<Call>& calls, const JobOptions& options,
               const std::filesystem::path& implementation) {
  RankJob job{.program = settings().rank_program(),
              .implementation = implementation,
              .scenario = kCalls,
              .inputs = std::vector<Parcel>(calls.at(0).inputs.size()),
              .deadline_s = options.deadline_s,
              .threads = options.network == Network::kSimulated ? 1 : options.threads,
              .network = options.network,
              .simulation = options.simulation};
  for (size_t rank = 0; rank < job.inputs.size(); ++rank) {
    Parcel& input = job.inputs[rank];
    input.set(kCalls, static_cast<double>(calls.size()));
    input.set_text("given", fmt::format("{}", fmt::join(options.given, " ")));
    for (size_t k = 0; k < calls.size(); ++k) {
      Parcel arguments = calls[k].inputs.at(rank);
      arguments.set_text("scenario", calls[k].scenario);
      input.set(call_entry(k), arguments);
    }
  }
  return job;
}

/// What came of a sequence of calls.
struct Sequence {
  std::vector<std::vector<Parcel>> results;  // of the calls that all ranks returned from
  std::string failure;                       // why there are no more
  bool unwritten = false;                    // because of a TODO
  std::vector<Parcel> unfinished = {};       // of each rank, if simulated ranks wait forever
};

/// A deadlock in which some ranks have returned from the call already, while others still wait for
/// them: said first.
std::string with_returned_ranks(const std::string& diagnosis) {
  const std::regex wait("rank (\\d+) waits in ([^\\n]*)");
  std::vector<int> returned;
  std::string waiting;
  for (auto match = std::sregex_iterator(diagnosis.begin(), diagnosis.end(), wait);
       match != std::sregex_iterator(); ++match) {
    const std::string operation = (*match)[2];
    if (operation.find(kBetweenCalls) != std::string::npos)
      returned.push_back(std::stoi((*match)[1]));
    else if (waiting.empty() && operation.find(" #") != std::string::npos)  // a collective
      waiting =
          fmt::format("rank {} still waits in {}", (*match)[1].str(),
                      operation.substr(0, std::min(operation.find(" ("), operation.find(':'))));
  }
  if (returned.empty() || waiting.empty()) return diagnosis;
  return fmt::format(
      "{} returned, but {}: every rank takes part in every message of a call, even if it "
      "has nothing to contribute\n{}",
      list_ranks(returned) + (returned.size() == 1 ? " has" : " have"), waiting, diagnosis);
}

bool failed_in_prelude(const std::vector<Call>& calls, const Sequence& sequence) {
  const size_t returned = sequence.results.size();
  return returned < calls.size() && calls[returned].prelude;
}

std::vector<Call> without_preludes(std::vector<Call> calls) {
  std::erase_if(calls, [](const Call& call) { return call.prelude; });
  return calls;
}

Sequence run_sequence(
    const std::vector<Call>& calls, const JobOptions& options,
    const std::filesystem::path& implementation = settings().implementation_file()) {
  std::vector<RankResult> ranks = run(job_of(calls, options, implementation));
  Sequence sequence;
  for (size_t k = 0; k < calls.size(); ++k) {
    std::vector<Parcel> results;
    for (const RankResult& rank : ranks)
      if (Parcel part = rank.result.part(call_entry(k)); !part.empty())
        results.push_back(std::move(part));
    if (results.size() < ranks.size()) break;
    sequence.results.push_back(std::move(results));
  }
  if (const RankResult* failure = first_failure(ranks)) {
    sequence.unwritten = failure->outcome == Outcome::kNotImplemented;
    sequence.failure = with_returned_ranks(failure->message) + printed(*failure);
    if (failure->outcome == Outcome::kDeadline && !failed_in_prelude(calls, sequence))
      deadline_messages()[current_suite()] = failure->message;
    if (failure->outcome == Outcome::kDiagnosed && options.network == Network::kSimulated)
      for (const RankResult& rank : ranks)
        sequence.unfinished.push_back(rank.result.part(kUnfinishedCall));
  } else if (sequence.results.size() < calls.size()) {
    sequence.failure = "a rank ended before it had returned from all calls";
  }
  return sequence;
}

std::string which_call(const std::vector<Call>& calls, size_t k) {
  const std::string& name = calls[k].name;
  if (calls.size() == 1) return name.empty() ? "" : fmt::format("\n({})", name);
  return fmt::format("\n(call {} of {}{}{})", k + 1, calls.size(), name.empty() ? "" : ": ", name);
}

/// Why call k of a sequence is wrong; empty if it is right.
std::string wrong_call(const Sequence& sequence, size_t k, size_t number, const JudgeCall& judge,
                       const JobOptions& options) {
  if (k >= sequence.results.size())
    return options.explain && k == sequence.results.size() && !sequence.unfinished.empty()
               ? options.explain(number, sequence.unfinished, sequence.failure)
               : sequence.failure;
  return tried([&] { judge(number, sequence.results[k]); });
}

/// Why call k is wrong in fresh processes; empty if it is right there. Whether a race shows depends
/// on when simulated messages arrive, so more than one order is tried.
std::string wrong_alone(const Call& call, size_t number, const JudgeCall& judge,
                        JobOptions options) {
  const int orders = options.simulation.max_delay > 0 ? 4 : 1;
  std::string message;
  for (int i = 0; i < orders && message.empty(); ++i, ++options.simulation.seed)
    message = wrong_call(run_sequence({call}, options), 0, number, judge, options);
  return message;
}

int& mutable_compared_calls() {
  static int calls = 0;
  return calls;
}

/// In place of judging: training steps of the whole file next to those of the solution.
void compare_calls(std::vector<Call> calls, JobOptions options) {
  std::erase_if(calls, [](const Call& call) { return call.scenario != "train_step"; });
  if (calls.empty()) return;
  for (Call& call : calls)
    for (Parcel& input : call.inputs) input.set(kRecordLogits, 1);
  options.given.clear();
  const Sequence right = run_sequence(calls, options, settings().solution_file());
  if (right.results.size() < calls.size())
    end_test(kHarness, "the solution fails: " + right.failure);
  const Sequence own = run_sequence(calls, options);
  for (size_t k = 0; k < calls.size(); ++k) {
    if (k >= own.results.size())
      stop((own.unwritten ? "" : "the reference completes these steps, your file does not\n") +
           own.failure + which_call(calls, k));
    const std::string difference =
        first_difference(calls[k].inputs, own.results[k], right.results[k]);
    if (!difference.empty()) stop("first difference: " + difference + which_call(calls, k));
    ++mutable_compared_calls();
  }
}

/// Takes the place of GoogleTest's printer.
class Collector final : public testing::EmptyTestEventListener {
 public:
  Collector(std::map<std::string, TaskResult>& results, std::string enough,
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

  void OnTestSuiteEnd(const testing::TestSuite& /*suite*/) override {
    // It would skip the other suites, too.
    if (std::exchange(enough_seen_, false)) GTEST_FLAG_SET(fail_fast, false);
  }

 private:
  static std::string task_of(const testing::TestInfo& test) {
    const std::string suite = test.test_suite_name();
    return suite.starts_with("Task") ? suite.substr(4) : suite;
  }

  std::map<std::string, TaskResult>& results_;
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

std::map<std::string, TaskResult> run_tests(
    const std::vector<std::string>& tasks, const std::string& enough,
    const std::function<void(const TaskResult&)>& on_first_failure) {
  std::string filter;
  for (const std::string& task : tasks)
    filter += fmt::format("{}Task{}.*", filter.empty() ? "" : ":", task);
  if (!filter.empty()) GTEST_FLAG_SET(filter, filter);
  std::map<std::string, TaskResult> results;
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Collector(results, enough, on_first_failure));
  // The return value says no more than `results`.
  [[maybe_unused]] const int failed = RUN_ALL_TESTS();
  for (const std::string& task : tasks)
    if (!results.contains(task))
      results[task] = {.task = task, .not_graded = "the verdict has no test of this task"};
  return results;
}

int compared_calls() { return mutable_compared_calls(); }

void stop(const std::string& message) { end_test(kVerdict, message); }

void expect(const std::vector<double>& got, const Expected& expected) {
  const std::string message = difference(got, expected);
  if (!message.empty()) stop(message);
}

void expect(double got, const Expected& expected) { expect(std::vector{got}, expected); }

uint64_t scenario_seed() {
  const char* seed = std::getenv("LAB_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

void expect_on_every_rank(const std::vector<std::vector<double>>& got,
                          const std::function<Expected(size_t)>& expected,
                          const std::function<std::string(size_t)>& details, Blame blame) {
  std::string message;
  std::vector<size_t> right;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t rank = blame == Blame::kFirstRank ? i : got.size() - 1 - i;
    const std::string wrong = difference(got[rank], expected(rank));
    if (wrong.empty())
      right.push_back(rank);
    else if (message.empty())
      message = fmt::format("{}{}{}", got.size() == 1 ? "" : fmt::format("rank {}: ", rank), wrong,
                            details ? "\n" + details(rank) : "");
  }
  if (!message.empty()) stop(message + right_ranks_in_words(right));
}

void expect_same_bits(const std::vector<std::vector<double>>& got, const std::string& what) {
  for (size_t rank = 1; rank < got.size(); ++rank)
    for (size_t i = 0; i < got[0].size(); ++i)
      if (got[rank].size() != got[0].size() || got[rank][i] != got[0][i])
        stop(fmt::format(
            "{} of rank {} and of rank 0 are not the same to the last bit: the replicas drift "
            "apart\nelement {}: rank 0 has {:.9g}, rank {} has {:.9g}",
            what, rank, i, got[0][i], rank, got[rank].size() > i ? got[rank][i] : 0.0));
}

void confirm_bits(const std::vector<double>& got, const std::vector<double>& oracle,
                  const std::string& what) {
  if (got == oracle) return;
  require(settings().implementation != "solution",
          "{}: the solution and one process differ in their last bits", what);
  static std::set<std::string> noted;  // once is enough
  if (noted.insert(what).second)
    fmt::print("note: {}: right, though not in the contracted order: the last bits differ\n", what);
}

std::vector<std::vector<double>> tensors_of(const std::vector<Parcel>& ranks,
                                            const std::string& entry) {
  std::vector<std::vector<double>> all;
  for (const Parcel& rank : ranks) all.push_back(to_doubles(rank.tensor(entry)));
  return all;
}

std::vector<std::vector<double>> numbers_of(const std::vector<Parcel>& ranks,
                                            const std::string& entry) {
  std::vector<std::vector<double>> all;
  for (const Parcel& rank : ranks) all.push_back(rank.numbers(entry));
  return all;
}

JobOptions late_messages(uint64_t seed, std::set<std::string> given) {
  JobOptions options{.network = Network::kSimulated, .given = std::move(given)};
  options.simulation.seed = seed;
  options.simulation.max_delay = 5;
  options.simulation.shuffle_ranks = true;
  return options;
}

JobOptions buffered_messages(std::set<std::string> given) {
  JobOptions options{.network = Network::kSimulated, .given = std::move(given)};
  options.simulation.buffered_bytes = 1 << 20;
  return options;
}

void judge_calls(const std::vector<Call>& calls, const JobOptions& options,
                 const JudgeCall& judge) {
  if (settings().compares) return compare_calls(calls, options);
  if (const auto hung = deadline_messages().find(current_suite());
      hung != deadline_messages().end())
    stop(hung->second);
  const Sequence sequence = run_sequence(calls, options);
  if (failed_in_prelude(calls, sequence))
    return judge_calls(without_preludes(calls), options, judge);
  if (sequence.unwritten) stop(sequence.failure);
  for (size_t k = 0; k < calls.size(); ++k) {
    if (calls[k].prelude) continue;
    std::string message = wrong_call(sequence, k, k, judge, options);
    if (message.empty()) continue;
    if (k > 0) {
      const std::string alone = wrong_alone(calls[k], k, judge, options);
      message = !alone.empty()
                    ? alone
                    : "right in a fresh process, wrong after other calls: something is kept from "
                      "an earlier call. Results depend on the arguments alone; look for static "
                      "variables, caches, and work done only the first time\n" +
                          message;
    }
    stop(message + which_call(calls, k));
  }
  if (!sequence.failure.empty()) stop(sequence.failure);
}

std::vector<Parcel> run_call(const Call& call, const JobOptions& options) {
  std::vector<Parcel> results;
  judge_calls({call}, options, [&](size_t, const std::vector<Parcel>& ranks) { results = ranks; });
  return results;
}

}  // namespace lab::grading
