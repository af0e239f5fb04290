// The main function of rank programs.
#pragma once

#include <map>
#include <string>

#include "common/comm/process_group.h"
#include "common/comm/sim/simulation.h"
#include "tests/grading/parcel.h"

namespace lab::grading {

/// Calls the lab's functions on `input` and returns what the verdict test will judge.
using Scenario = Parcel (*)(const Parcel& input);

/// The same for ranks that talk: called once on every rank of a job.
using GroupScenario = Parcel (*)(const Parcel& input, ProcessGroup& world);

struct Scenarios {
  std::map<std::string, Scenario> alone = {};
  std::map<std::string, GroupScenario> group = {};
};

/// Runs `--scenario NAME --in FILE --out FILE`. An exception that leaves the scenario is written to
/// FILE in place of a result. A group scenario joins the job that the environment tells of.
///
/// With `--implementation FILE` the lab's functions come from this shared object
/// (implementation.h).
///
/// The scenario "calls" runs the calls of a sequence one after the other in this process: `input`
/// holds their number as "calls", and each call as the part "callK", whose text "scenario" says
/// what it runs. The result holds what each returned in parts of the same names, with the
/// operations of the call (operations.h). Ranks meet between calls.
///
/// With `--simulate OPTIONS`, as `to_text` writes them, this one process runs all ranks of a group
/// scenario; `--in` and `--out` are then the folder of the files that rank_files.h names. With
/// `--given 1,4b` the functions of these tasks are correct ones. Inputs are removed before the
/// shared object is loaded.
int rank_main(int argc, char** argv, const Scenarios& scenarios);

inline constexpr const char* kCalls = "calls";
std::string call_entry(size_t call);

/// Exit code of a rank that could not read its input or write its result: a full disk, say. That is
/// no failure of the implementation.
inline constexpr int kParcelFailed = 70;

/// Entries of the parcel that a rank program leaves, by which the harness knows how it ended.
inline constexpr const char* kOutcomeEntry = "rank.outcome";
inline constexpr const char* kMessageEntry = "rank.message";
inline constexpr const char* kReturnedOutcome = "returned";
inline constexpr const char* kNotImplementedOutcome = "not implemented";
inline constexpr const char* kErrorOutcome = "error";
inline constexpr const char* kBrokenOffOutcome = "broken off";
inline constexpr const char* kDiagnosedOutcome = "diagnosed";

std::string to_text(const SimulationOptions& options);

}  // namespace lab::grading
