// Job: this process as one rank among others, from rendezvous to farewell.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/comm/store/store.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

/// Joins a job: reaches the store (rank 0 serves it unless the launcher does), says itself there,
/// waits until all ranks have come (with a line on stderr, after two seconds, that says who is
/// still awaited), and connects the world group over Gloo. Where nobody watches the flight records,
/// a watchdog thread does: it publishes what this rank waits for, and when the job can never go on,
/// prints why and ends the process with kDiagnosedExit. A job of one rank opens no port.
///
/// In this process, standard output is then written line by line, and SIGPIPE is ignored.
class Job {
 public:
  /// Throws Error: unreachable master, port in use, a rank that never arrives, two processes with
  /// one rank, another world size than rank 0's.
  explicit Job(const RankEnvironment& environment);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const RankEnvironment& environment() const;
  /// The ranks on this rank's machine (of one container: on it), ascending; this one among them.
  std::vector<int> ranks_here() const;
  ProcessGroup& world();
  Store& store();

  /// All ranks call it with the same `what`. Throws Error on every rank unless all have the same
  /// value: "the ranks disagree about the corpus: rank 0 has ..., rank 2 has ...".
  void agree(const std::string& what, const std::string& value);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
