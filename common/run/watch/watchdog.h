// Watchdog: a thread of every rank that publishes what the rank does, and ends it with its job.
#pragma once

#include <memory>
#include <vector>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/store/store.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/run/rendezvous/rendezvous.h"

namespace lab {

/// Publishes this rank's snapshot every Judge::kBeat. If a launcher serves the store, that is all:
/// the launcher judges the job and ends its ranks.
///
/// Otherwise rank 0's watchdog judges. When the job can never go on, it prints the diagnosis, every
/// other rank prints one line, and each watchdog ends its process with kDiagnosedExit: the main
/// thread is blocked in a transport and cannot be interrupted. The same happens if rank 0 is gone.
class Watchdog {
 public:
  /// `store` and `recorder` must outlive it.
  Watchdog(Store& store, const FlightRecorder& recorder, const RankEnvironment& environment,
           std::vector<RankIdentity> ranks);
  /// Publishes the last snapshot.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Call it when an exception ends this rank, while its groups still exist: from then on the
  /// watchdog does not end the process, so the exception's message will be printed. Returns true
  /// when the job has been judged (rank 0 and its store may be gone from then on), or false after
  /// the time in which a judgement is to be expected; at once if a launcher judges.
  bool last_words();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
