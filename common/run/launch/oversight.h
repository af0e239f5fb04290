// Oversight: what a launcher knows about a job, apart from the processes that it has started.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/run/launch/child_process.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

/// children[i] is rank `first` + i.
struct StartedRanks {
  int first = 0;
  std::vector<std::unique_ptr<ChildProcess>> children;
  /// Indices of the ranks that have failed without being ended by the launcher, in the order in
  /// which it noticed.
  std::vector<size_t> failed;
  std::optional<std::chrono::steady_clock::time_point> failed_at;  // the first of them
  bool ended_others = false;  // the launcher has ended those that were still running
};

class Oversight {
 public:
  Oversight() = default;
  virtual ~Oversight() = default;
  Oversight(const Oversight&) = delete;
  Oversight& operator=(const Oversight&) = delete;

  /// Where the ranks meet, as environment variables.
  virtual std::map<std::string, std::string> environment() const = 0;
  /// Called every fifth of a second. True if the ranks that are still running must be ended.
  virtual bool is_over(const StartedRanks& ranks) = 0;
  /// Called when all have ended: says on stderr why, unless all is well. Returns the exit code for
  /// main.
  virtual int report(const StartedRanks& ranks) = 0;
};

/// For a job whose ranks are all on this host: serves their store, and judges them by their flight
/// records.
std::unique_ptr<Oversight> oversee_one_host(size_t ranks);

/// For one of several hosts, whose ranks judge the job themselves (Watchdog): tells rank 0 which
/// rank of this host has failed, and gives all of them time to say why the job cannot go on. Throws
/// Error if other hosts cannot reach host 0 at the address that the options say.
std::unique_ptr<Oversight> oversee_one_of_several_hosts(const LaunchOptions& options);

/// Exit code of a process that has ended: 128 + signal for a signal.
int exit_code_of(int wait_status);

}  // namespace lab
