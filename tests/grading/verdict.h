// What a lab's verdict test is written with: run a scenario, judge what it returned.
//
// A verdict test is a GoogleTest program without any student code. The tests of task "1a" are the
// suite "Task1a". Every test calls `student(...)` and then `expect(...)` or `stop(...)`.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/grading/compare.h"
#include "tests/grading/operations.h"
#include "tests/grading/parcel.h"
#include "tests/grading/rank_harness.h"

namespace lab::grading {

/// Ends this test as failed. First line: what is wrong, in words of the lesson; then details.
[[noreturn]] void stop(const std::string& message);

/// Ends this test as failed unless the numbers are right.
void expect(const std::vector<double>& got, const Expected& expected);
void expect(double got, const Expected& expected);

/// The seed that scenarios are drawn from: 1, or what `./workbook test N --seed S` says.
uint64_t scenario_seed();

/// Ends the test as failed unless `got[rank]` is right on every rank. The message names the
/// first rank that is wrong (with `kLastRank` the last, because in a backward pass mistakes travel
/// upstream), and the ranks that are right. `details(rank)` adds lines.
enum class Blame { kFirstRank, kLastRank };
void expect_on_every_rank(const std::vector<std::vector<double>>& got,
                          const std::function<Expected(size_t rank)>& expected,
                          const std::function<std::string(size_t rank)>& details = {},
                          Blame blame = Blame::kFirstRank);

/// Ends the test as failed unless all ranks have the same bits.
void expect_same_bits(const std::vector<std::vector<double>>& got, const std::string& what);

/// Where the reference is promised to have an oracle's bits: to be called when the numbers are
/// known to be right within their tolerance. A student with other bits reads a note; the solution
/// is not graded without them ("What equal means" in docs/architecture.md).
void confirm_bits(const std::vector<double>& got, const std::vector<double>& oracle,
                  const std::string& what);

/// A tensor, or a list of numbers, of every rank.
std::vector<std::vector<double>> tensors_of(const std::vector<Parcel>& ranks,
                                            const std::string& entry);
std::vector<std::vector<double>> numbers_of(const std::vector<Parcel>& ranks,
                                            const std::string& entry);

/// One call of a scenario on all ranks of a job.
struct Call {
  std::string scenario;
  std::vector<Parcel> inputs;  // one per rank
  std::string name = {};       // "no rank has a target": told when this call fails
  /// Calls a function of another task: it is not judged; if it fails, nothing after it is either.
  bool prelude = false;
  /// The mistake that most often ends a process in this call: told before the signal.
  std::string if_it_crashes = {};
};

struct JobOptions {
  Network network = Network::kGloo;
  std::set<std::string> given = {};  // tasks whose functions are correct ones (implementation.h)
  SimulationOptions simulation = {};
  int threads = 2;  // per rank: parallel loops must be parallel on every machine
  double deadline_s = 10;
  /// Asked for the message when simulated ranks wait for each other forever: `diagnosis` is what
  /// can be told without knowing the lab, `ranks` the operations of the call until then, also those
  /// that are pending (unfinished_operations).
  std::function<std::string(size_t call, const std::vector<Parcel>& ranks,
                            const std::string& diagnosis)>
      explain = {};
};
/// Simulated ranks in any order, whose messages may be late. Nothing is buffered.
JobOptions late_messages(uint64_t seed, std::set<std::string> given = {});
/// Simulated ranks whose sends never wait: what is sent to the wrong rank, or too often, gets
/// through and is counted.
JobOptions buffered_messages(std::set<std::string> given = {});

/// Judges what the ranks returned from a call, by `expect` and `stop`.
using JudgeCall = std::function<void(size_t call, const std::vector<Parcel>& ranks)>;

/// Runs the calls one after the other in the same processes and judges each. So nothing that a
/// function keeps from one call to the next goes unnoticed: the message says so if a call is wrong
/// here and right in a fresh process.
void judge_calls(const std::vector<Call>& calls, const JobOptions& options, const JudgeCall& judge);

/// What the ranks return from one call; ends the test as failed if one does not.
std::vector<Parcel> run_call(const Call& call, const JobOptions& options);

}  // namespace lab::grading
