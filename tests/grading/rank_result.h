// RankResult: what became of one rank, in words.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/run/launch/child_process.h"
#include "tests/grading/parcel.h"

namespace lab::grading {

enum class Outcome {
  kReturned,        // `result` is there
  kNotImplemented,  // met a TODO
  kError,           // stopped with an exception
  kExit,            // ended on its own without a result
  kCrash,           // ended by a signal
  kBrokenOff,       // stopped with an error because a message broke off
  kDiagnosed,       // waited for what can never come; `message` explains
  kDeadline,        // still ran at the deadline
  kEnded,           // still ran when another rank failed
};

struct RankResult {
  int rank = 0;
  Outcome outcome = Outcome::kReturned;
  std::string message;  // names the rank, unless it is the only one; empty if it returned
  std::string output;   // what it printed, of long output the end
  double ended_after_s = 0;
  double cpu_s = 0;  // processor time that its process used
  Parcel result;
};

/// The rank that tells most about what went wrong. When one rank fails, others often stop with an
/// error because it is gone: so TODOs and crashes come before errors, errors before waiting, and of
/// equals the first in time. Null if all returned.
const RankResult* first_failure(const std::vector<RankResult>& results);

/// Fills in `result`, whose rank is known, from a process that has ended on its own and the file
/// that it should have written. What comes from the program's own code is quoted. Throws Error if
/// the rank could not do its part of the harness's work.
void describe_end(const ChildProcess& child, const std::filesystem::path& file, RankResult& result);

/// Fills in the words for a rank that was ended at the deadline; `result` has its processor time.
void tell_deadline(double deadline_s, RankResult& result);

/// Whether a rank that was ended at the deadline had computed for most of that time.
bool computed_all_the_time(const RankResult& result, double deadline_s);

}  // namespace lab::grading
