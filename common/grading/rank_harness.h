// The rank harness: runs one implementation's rank program, once per rank, and tells what became of
// it. Students' code runs in those processes only, never in the test that judges it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/grading/parcel.h"

namespace lab::grading {

struct RankJob {
  std::filesystem::path program;
  std::string scenario;        // what the rank program shall do, see rank_main.h
  std::vector<Parcel> inputs;  // one per rank
  double deadline_s = 10;      // then every rank that still runs is ended
  double grace_s = 1;          // what the other ranks get once one has failed
  int threads = 0;             // per rank; 0: an equal share of the cores
};

enum class Outcome {
  kReturned,        // `result` is there
  kNotImplemented,  // met a TODO
  kError,           // stopped with an exception
  kExit,            // ended by itself without a result
  kCrash,           // ended by a signal
  kDeadline,        // still ran at the deadline
  kEnded,           // still ran when another rank failed
};

struct RankResult {
  int rank = 0;
  Outcome outcome = Outcome::kReturned;
  std::string message;  // one line that names the rank; empty if it returned
  std::string output;   // what it printed, of long output the end
  double ended_after_s = 0;
  Parcel result;
};

/// Starts all ranks, waits, and leaves neither process nor file behind. Each rank finds RANK,
/// LOCAL_RANK, WORLD_SIZE, OMP_NUM_THREADS and OMP_WAIT_POLICY in its environment. Throws Error if
/// the harness itself fails: program not found, temporary folder not writable, disk full.
///
/// With the environment variable LAB_DEBUG_RANK=K, rank K waits until a debugger is attached; the
/// command is printed, and there is no deadline.
std::vector<RankResult> run_ranks(const RankJob& job);

/// The rank that tells most about what went wrong. When one rank fails, others often stop with an
/// error because it is gone: so TODOs and crashes come before errors, errors before waiting, and of
/// equals the first in time. Null if all returned.
const RankResult* first_failure(const std::vector<RankResult>& results);

}  // namespace lab::grading
