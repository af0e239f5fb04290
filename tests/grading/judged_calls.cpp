// Runs sequences of calls in rank programs, and judges each call, or compares it with the
// solution's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/diagnosis/describe.h"
#include "tests/grading/quoted.h"
#include "tests/grading/rank_harness.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/step_comparison.h"
#include "tests/grading/training_rank.h"
#include "tests/grading/verdict.h"
#include "tests/grading/verdict_session.h"

namespace lab::grading {
namespace {

/// What a program printed; of long output the end.
std::string printed(const RankResult& rank, Network network) {
  if (rank.output.empty()) return "";
  constexpr size_t kShown = 2000;
  const bool cut = rank.output.size() > kShown;
  const std::string shown =
      cut ? "..." + rank.output.substr(rank.output.size() - kShown) : rank.output;
  const std::string margin = network == Network::kNone
                                 ? "your code printed | "
                                 : fmt::format("rank {} printed | ", rank.rank);
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
    break_off(error.what());
  }
}

RankJob job_of(const std::vector<Call>& calls, const JobOptions& options,
               const std::filesystem::path& implementation) {
  RankJob job{.program = settings().rank_program(),
              .implementation = implementation,
              .scenario = kCalls,
              .inputs = std::vector<Parcel>(calls.at(0).inputs.size()),
              .given = options.given,
              .deadline_s = options.deadline_s,
              .threads = options.network == Network::kSimulated ? 1 : options.threads,
              .network = options.network,
              .simulation = options.simulation};
  for (size_t rank = 0; rank < job.inputs.size(); ++rank) {
    Parcel& input = job.inputs[rank];
    input.set(kCalls, static_cast<double>(calls.size()));
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
  std::vector<std::vector<Parcel>> results;  // of the calls whose results all ranks have noted
  size_t returned = 0;                       // calls that all ranks have returned from
  std::string failure;                       // why there are no more
  bool unwritten = false;                    // because of a TODO
  bool crashed = false;
  std::vector<Parcel> unfinished = {};  // of each rank, if simulated ranks wait forever
};

/// A deadlock in which some ranks have returned from the call already, while others still wait for
/// them: said first. Without the advice at the end, which is about the collective of the test.
std::string with_returned_ranks(const std::string& diagnosis) {
  const std::regex wait("rank (\\d+) waits in ([^\\n]*)");
  std::vector<int> returned;
  std::string waiting;  // in a collective
  std::string message;  // in a send or recv
  for (auto match = std::sregex_iterator(diagnosis.begin(), diagnosis.end(), wait);
       match != std::sregex_iterator(); ++match) {
    const std::string operation = (*match)[2];
    if (operation.find(kBetweenCalls) != std::string::npos)
      returned.push_back(std::stoi((*match)[1]));
    else if (waiting.empty() && operation.find(" #") != std::string::npos)
      waiting =
          fmt::format("rank {} still waits in {}", (*match)[1].str(),
                      operation.substr(0, std::min(operation.find(" ("), operation.find(':'))));
    else if (message.empty() && operation.find("tag ") != std::string::npos)
      message = fmt::format("rank {} still waits in {}", (*match)[1].str(), operation);
  }
  if (returned.empty() || (waiting.empty() && message.empty())) return diagnosis;
  const std::string which = list_ranks(returned) + (returned.size() == 1 ? " has" : " have");
  if (waiting.empty())
    return fmt::format("{} returned, but {}\n{}", which, message,
                       diagnosis.substr(0, diagnosis.find("\n  a collective returns when")));
  return fmt::format(
      "{} returned, but {}: every rank takes part in every message of a call, even if it "
      "has nothing to contribute\n{}",
      which, waiting, diagnosis);
}

bool failed_in_prelude(const std::vector<Call>& calls, const Sequence& sequence) {
  return sequence.returned < calls.size() && calls[sequence.returned].prelude;
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
    // A rank notes a result when it has met all others after the call. If the next call ends a
    // process at once, other ranks have had no time for that: yet they had returned.
    const bool met = !results.empty() && k + 1 < calls.size() && options.network != Network::kNone;
    const bool noted = results.size() == ranks.size();
    if (met || noted) sequence.returned = k + 1;
    if (!noted) break;
    sequence.results.push_back(std::move(results));
  }
  if (const RankResult* failure = first_failure(ranks)) {
    sequence.unwritten = failure->outcome == Outcome::kNotImplemented;
    sequence.crashed = failure->outcome == Outcome::kCrash;
    sequence.failure = with_returned_ranks(failure->message) + printed(*failure, options.network);
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
  return fmt::format("\n(call {} of {} in this test{}{})", k + 1, calls.size(),
                     name.empty() ? "" : ": ", name);
}

/// Why call k of a sequence is wrong; empty if it is right.
std::string wrong_call(const Call& call, const Sequence& sequence, size_t k, size_t number,
                       const JudgeCall& judge, const JobOptions& options) {
  if (k < sequence.results.size()) return why_stopped([&] { judge(number, sequence.results[k]); });
  if (k < sequence.returned) return "";  // the next one has failed
  if (sequence.crashed && !call.if_it_crashes.empty())
    return call.if_it_crashes + "\n" + sequence.failure;
  return options.explain && k == sequence.returned && !sequence.unfinished.empty()
             ? options.explain(number, sequence.unfinished, sequence.failure)
             : sequence.failure;
}

/// Why call k is wrong in fresh processes; empty if it is right there. Whether a race shows depends
/// on when simulated messages arrive, so more than one order is tried.
std::string wrong_alone(const Call& call, size_t number, const JudgeCall& judge,
                        JobOptions options) {
  const int orders = options.simulation.max_delay > 0 ? 4 : 1;
  std::string message;
  for (int i = 0; i < orders && message.empty(); ++i, ++options.simulation.seed)
    message = wrong_call(call, run_sequence({call}, options), 0, number, judge, options);
  return message;
}

/// The mistakes that explain the numbers of the call judged last, of which `message` tells the
/// first.
std::vector<std::string> explanations_behind(const std::string& message) {
  for (const std::vector<std::string>& alike : take_explanations())
    if (message.find(alike[0]) != std::string::npos) return alike;
  return {};
}

/// `message` tells the first of several mistakes that look `alike` in call k. Where a later call is
/// explained by one of them alone, that call is told instead.
std::string without_ties(const std::string& message, const std::vector<std::string>& alike,
                         const std::vector<Call>& calls, size_t k, const Sequence& sequence,
                         const JudgeCall& judge) {
  for (size_t later = k + 1; alike.size() > 1 && later < sequence.results.size(); ++later) {
    if (calls[later].prelude) continue;
    take_explanations();
    const std::string other = why_stopped([&] { judge(later, sequence.results[later]); });
    const std::vector<std::string> explained = explanations_behind(other);
    if (explained.size() == 1 && std::ranges::find(alike, explained[0]) != alike.end())
      return other + which_call(calls, later);
  }
  return message + which_call(calls, k);
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
  if (right.results.size() < calls.size()) break_off("the solution fails: " + right.failure);
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

}  // namespace

int compared_calls() { return mutable_compared_calls(); }

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
    take_explanations();
    std::string message = wrong_call(calls[k], sequence, k, k, judge, options);
    if (message.empty()) continue;
    std::vector<std::string> alike = explanations_behind(message);
    if (k > 0) {
      take_explanations();
      const std::string alone = wrong_alone(calls[k], k, judge, options);
      alike = explanations_behind(alone);
      message = !alone.empty()
                    ? alone
                    : "right in a fresh process, wrong after other calls: something is kept from "
                      "an earlier call. Results depend on the arguments alone; look for static "
                      "variables, caches, and work done only the first time\n" +
                          message;
    }
    stop(without_ties(message, alike, calls, k, sequence, judge));
  }
  if (!sequence.failure.empty()) stop(sequence.failure);
}

std::vector<Parcel> run_call(const Call& call, const JobOptions& options) {
  std::vector<Parcel> results;
  judge_calls({call}, options, [&](size_t, const std::vector<Parcel>& ranks) { results = ranks; });
  return results;
}

}  // namespace lab::grading
