// What a lab's verdict test is written with: run a scenario, judge what it returned.
//
// A verdict test is a GoogleTest program without any student code. The tests of task "1a" are the
// suite "Task1a". Every test calls `student(...)` and then `expect(...)` or `stop(...)`.
#pragma once

#include <string>
#include <vector>

#include "common/grading/compare.h"
#include "common/grading/parcel.h"
#include "common/grading/rank_harness.h"

namespace lab::grading {

/// Ends this test as failed. First line: what is wrong, in words of the lesson; then details.
[[noreturn]] void stop(const std::string& message);

/// Ends this test as failed unless the numbers are right.
void expect(const std::vector<double>& got, const Expected& expected);
void expect(double got, const Expected& expected);

/// Which functions the rank program calls where one task builds on another.
enum class Functions {
  kOwn,          // the implementation's
  kGiven,        // correct ones of the lab's tests (tests/labs/FOLDER/given.cpp), in their place
  kPartlyGiven,  // some of them (partly_given.cpp)
};

/// Runs a scenario of the implementation that is being judged, one rank per input. Ends the test as
/// failed, with what the rank printed, if a rank does not return a result.
std::vector<Parcel> student(const std::string& scenario, const std::vector<Parcel>& inputs,
                            Functions functions = Functions::kOwn);
Parcel student(const std::string& scenario, const Parcel& input,
               Functions functions = Functions::kOwn);

/// Runs a group scenario: one rank per input, over Gloo or simulated. `deadline_s`: for all of it.
struct GroupOptions {
  Functions functions = Functions::kOwn;
  Network network = Network::kGloo;
  SimulationOptions simulation = {};
  double deadline_s = 10;
};
std::vector<Parcel> student_group(const std::string& scenario, const std::vector<Parcel>& inputs,
                                  const GroupOptions& options = {});

/// What a rank of `student_group` has sent: how many operations of a kind, and their bytes (of the
/// tensor; the ring that carries an all_reduce moves about twice as many). Counted below what a
/// student's code can reach.
Traffic traffic_of(const Parcel& result, OpKind kind);

/// The same with the solution. Where that fails, the test is not graded.
Parcel reference(const std::string& scenario, const Parcel& input);
std::vector<Parcel> reference_group(const std::string& scenario, const std::vector<Parcel>& inputs,
                                    const GroupOptions& options = {});

}  // namespace lab::grading
