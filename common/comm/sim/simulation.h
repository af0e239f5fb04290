// Simulation: all ranks of a job in one process, one running at a time; the same seed gives the
// same run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/process_group.h"
#include "common/comm/sim/sim_clock.h"

namespace lab {

/// What the simulated network does to programs. By default it is as strict as Gloo: nothing is
/// buffered.
struct SimulationOptions {
  int ranks = 2;
  uint64_t seed = 1;
  /// Messages up to this size are buffered: their send is done at once. Programs that rely on this
  /// deadlock when messages grow.
  size_t buffered_bytes = 0;
  /// Every message arrives up to this many steps of simulated time late, drawn from the seed, and
  /// any may overtake any other: a rank that skips the wait reads stale data, and one that changes
  /// a tensor before its send is done sends the new numbers. Which recv gets which message does not
  /// change.
  int max_delay = 0;
  /// Which rank runs next when several could: the lowest (false), or drawn from the seed.
  bool shuffle_ranks = false;
  /// Messages from one rank to another arrive as late as possible: when no other rank can go on.
  /// Whatever other ranks do before then cannot have depended on these messages.
  struct SlowLink {
    int from = 0;
    int to = 0;
  };
  std::optional<SlowLink> slow_link = {};
  /// This rank dies when it posts its n-th operation (from 1): message or collective.
  struct Death {
    int rank = 0;
    int operation = 1;
    /// A wait for a rank that has ended throws BrokenOff, as over Gloo, and the other ranks go on.
    /// Otherwise the job ends with a diagnosis.
    bool breaks_off = false;
  };
  std::optional<Death> death = {};
  /// Messages take time, by this model: nothing is buffered or late then, and times are seconds.
  /// Collectives of ProcessGroup cost what a ring of the members would: each of its steps takes as
  /// long as a message of 1/n of the tensor (all_gather: of the output, reduce_scatter: of the
  /// input) over the slowest of the ring's links. all_gather and reduce_scatter have n - 1 steps,
  /// all others 2(n - 1). Their additions take no time.
  std::optional<CostModel> costs = {};
};

/// The times of a job, by its cost model, in seconds.
struct SimTimes {
  std::vector<double> finish;       // per rank: when it ended
  std::vector<double> exposed;      // per rank: how long it waited until then, without computing
  double makespan = 0;              // when the last one ended
  std::vector<SimTraffic> traffic;  // in the order in which it began

  /// All that went over one link.
  double bytes(int from, int to) const;
};

struct SimulationReport {
  /// Per rank: empty, or the message of the exception that ended it. A rank that would wait forever
  /// is ended with the diagnosis's headline.
  std::vector<std::string> errors;
  std::optional<Diagnosis> diagnosis;
  std::vector<RankSnapshot> snapshots;  // at the end, or when the diagnosis was made
  /// Per rank. Times are steps of simulated time, from 1: every network operation takes one, and
  /// when all ranks wait, the clock advances to the next arrival. Computations take none. With a
  /// cost model they are nanoseconds by the rank's clock, which begins at 1.
  std::vector<std::vector<OpRecord>> history;
  std::optional<SimTimes> times;  // with a cost model

  bool succeeded() const;
};

/// Runs `body` once per rank, each with its world group; returns when all have ended. Each rank has
/// its own thread, but another one runs only when it waits: no two run at once, and data that the
/// bodies share needs no lock. A deadlock (no rank can go on) is found exactly and at once. There
/// are no deadlines: if a body computes forever, this never returns.
///
/// A rank that is ended from outside is unwound by an exception that is not a std::exception; a
/// body that catches it anyway can no longer communicate.
///
/// Throws Error if the options contradict each other, std::system_error if threads run out.
SimulationReport simulate(const SimulationOptions& options,
                          const std::function<void(ProcessGroup&)>& body);

}  // namespace lab
