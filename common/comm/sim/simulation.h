// Simulation: all ranks of a job in one process, one of them running at a time; the same seed gives
// the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/process_group.h"

namespace lab {

/// What the simulated network does to programs. By default it is as strict as Gloo: nothing is
/// buffered.
struct SimulationOptions {
  int ranks = 2;
  uint64_t seed = 1;
  /// Messages up to this size are buffered: their send is done at once. Programs that rely on it
  /// deadlock when messages grow.
  size_t buffered_bytes = 0;
  /// Every message arrives up to this many steps of simulated time late, drawn from the seed, and
  /// any may overtake any other: who does not wait for a message, reads old numbers, and who
  /// changes a tensor before its send is done, sends the new ones. Which recv gets which message
  /// does not change.
  int max_delay = 0;
  /// Which rank runs next when several could: the lowest (false), or drawn from the seed.
  bool shuffle_ranks = false;
  /// Messages from one rank to another arrive as late as can be: when nobody else can go on. What
  /// others do before then, did not wait for them.
  struct SlowLink {
    int from = 0;
    int to = 0;
  };
  std::optional<SlowLink> slow_link = {};
  /// This rank dies when it posts its n-th operation (from 1): message or collective.
  struct Death {
    int rank = 0;
    int operation = 1;
  };
  std::optional<Death> death = {};
};

struct SimulationReport {
  /// Per rank: empty, or the message of the exception that ended it. A rank that waits for ever is
  /// ended with the diagnosis's headline.
  std::vector<std::string> errors;
  std::optional<Diagnosis> diagnosis;
  std::vector<RankSnapshot> snapshots;  // at the end, or when the diagnosis was made
  /// Per rank. Times are steps of simulated time, from 1: every operation that the network is given
  /// takes one, and when all ranks wait, time goes on to the next arrival. Computations take none.
  std::vector<std::vector<OpRecord>> history;

  bool succeeded() const;
};

/// Runs `body` once per rank, each with its world group; returns when all have ended. Each rank has
/// a thread of its own, but hands on to another only where it waits: no two run at once, and what
/// the ranks' bodies share needs no lock. When no rank can go on, the job is deadlocked: that is
/// found exactly, and at once. There are no deadlines; a body that computes for ever never returns.
///
/// A rank that is ended from outside is unwound by an exception that is no std::exception; a body
/// that catches it all the same can do no more communication.
///
/// Throws Error if the options contradict each other, std::system_error if threads run out.
SimulationReport simulate(const SimulationOptions& options,
                          const std::function<void(ProcessGroup&)>& body);

}  // namespace lab
