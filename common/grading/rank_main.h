// The main function of rank programs.
#pragma once

#include <map>
#include <string>

#include "common/grading/parcel.h"

namespace lab::grading {

/// Calls the lab's functions on `input` and returns what the verdict test will judge.
using Scenario = Parcel (*)(const Parcel& input);

/// Runs `--scenario NAME --in FILE --out FILE`. An exception that leaves the scenario is written to
/// FILE in place of a result.
int rank_main(int argc, char** argv, const std::map<std::string, Scenario>& scenarios);

/// Exit code of a rank that could not read its input or write its result: a full disk, say. That is
/// no failure of the implementation.
inline constexpr int kParcelFailed = 70;

/// Entries of the parcel that a rank program leaves, by which the harness knows how it ended.
inline constexpr const char* kOutcomeEntry = "rank.outcome";
inline constexpr const char* kMessageEntry = "rank.message";
inline constexpr const char* kReturnedOutcome = "returned";
inline constexpr const char* kNotImplementedOutcome = "not implemented";
inline constexpr const char* kErrorOutcome = "error";

}  // namespace lab::grading
