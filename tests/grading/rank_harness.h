// The rank harness: runs one implementation's rank program, once per rank, and tells what became of
// it. Students' code runs in those processes only, never in the test that judges it.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/comm/sim/simulation.h"
#include "tests/grading/parcel.h"
#include "tests/grading/rank_result.h"

namespace lab::grading {

/// How the ranks of a job reach each other.
enum class Network {
  kNone,       // not at all: each rank runs for itself
  kGloo,       // processes, over TCP on this machine
  kSimulated,  // threads of one process, one at a time: see common/comm/sim
};

/// How long the harness sleeps before it looks again at the processes that it has started.
constexpr int kPollMilliseconds = 5;

struct RankJob {
  std::filesystem::path program;
  std::filesystem::path implementation = {};  // that it loads, unless it is linked with one
  std::string scenario;                       // what the rank program must do, see rank_main.h
  std::vector<Parcel> inputs;                 // one per rank
  std::set<std::string> given = {};           // tasks whose functions are correct ones
  double deadline_s = 10;  // in which it is done unless something is wrong; then every rank that
                           // still runs is ended
  double grace_s = 1;      // what the other ranks get once one has failed
  int threads = 0;         // per rank; 0: the cores are divided equally
  Network network = Network::kNone;
  SimulationOptions simulation = {};  // `ranks` is the number of inputs
};

/// Starts all ranks, waits, and leaves neither process nor file behind. Each rank finds RANK,
/// LOCAL_RANK, WORLD_SIZE, OMP_NUM_THREADS, OMP_WAIT_POLICY, GOMP_SPINCOUNT, MALLOC_PERTURB_ and
/// kSimpleProductsVariable in its environment, over Gloo also MASTER_ADDR and MASTER_PORT of a
/// store that the harness serves. A job that can never go on (a deadlock, a rank that others wait
/// for is gone) is ended at once and explained. Throws Error if the harness itself fails: program
/// not found, temporary folder not writable, disk full.
///
/// With the environment variable LAB_DEBUG_RANK=K, rank K waits until a debugger is attached; the
/// command is printed, and there is no deadline.
std::vector<RankResult> run_ranks(const RankJob& job);

/// Whether ranks that were ended at the deadline had computed all the time, on one processor or on
/// all: more time would hardly help them.
bool had_the_processors(const std::vector<RankResult>& results, const RankJob& job);

/// The same as run_ranks; but if ranks were ended at the deadline and had not had the processors,
/// as on a machine that is busy with other things, runs them once more with kPatience times the
/// deadline.
std::vector<RankResult> run_ranks_patiently(const RankJob& job);
inline constexpr double kPatience = 4;

/// How to start a process that contains a student's code. The environment variable LAB_SANDBOX may
/// name a program that confines it: its arguments are `folder`, the only one that the process sees
/// and may write to, and the command, in which --given names the tasks that are given. Without that
/// variable, the command itself.
std::vector<std::string> in_sandbox(const std::filesystem::path& folder,
                                    std::vector<std::string> command);

/// Makes oneDNN multiply with its simplest kernels. Its fastest ones are made when a process first
/// multiplies, which takes 45 ms with AVX-512: more than all products of a test. Products also have
/// the same bits on every x86 machine then.
inline constexpr const char* kSimpleProductsVariable = "ONEDNN_MAX_CPU_ISA";
inline constexpr const char* kSimpleProducts = "SSE41";

}  // namespace lab::grading
