// Job: this process as one rank of a job, from joining to leaving.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/comm/store/store.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

/// Joins a job: connects to the store (which rank 0 serves unless the launcher does), registers
/// there, waits until all ranks have arrived (after two seconds, a line on stderr says which ones
/// are missing), and connects the world group over Gloo. A thread publishes what this rank waits
/// for (Watchdog), so that a job that can never go on ends and says why. A job of one rank opens no
/// port.
///
/// From then on, this process writes standard output line by line and ignores SIGPIPE.
class Job {
 public:
  /// Throws Error: unreachable master, port in use, a rank that never arrives, two processes with
  /// one rank, another world size than rank 0's.
  explicit Job(const RankEnvironment& environment);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const RankEnvironment& environment() const;
  /// The ranks on this rank's machine (or in its container), ascending, including this one.
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
