// Watchdog: a thread that watches the job from within a rank, if no launcher does.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/store/store.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/run/rendezvous/rendezvous.h"

namespace lab {

/// Publishes what this rank does; in rank 0 it also judges what all ranks do (BeatJudge). When the
/// job can never go on, rank 0 prints the diagnosis, every other rank one line, and each watchdog
/// ends its process with kDiagnosedExit: the main thread is blocked in a transport and cannot be
/// interrupted. The same happens if rank 0, which serves the store, is gone.
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
  /// `patience`.
  bool last_words(std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
