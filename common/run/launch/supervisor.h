// Supervisor: when a launcher must end its ranks, and what it says in the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/store/tcp_store.h"
#include "common/run/launch/child_process.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/run/watch/judge.h"

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

/// If all ranks are on this host, it serves their store and judges the job. If there are several
/// hosts, rank 0 does both; the supervisor then only tells rank 0 which ranks of this host have
/// failed, and gives all ranks time to say why the job cannot go on.
class Supervisor {
 public:
  /// `ranks` must outlive it. Throws Error if other hosts cannot reach host 0 at the address that
  /// the options say.
  Supervisor(const LaunchOptions& options, const StartedRanks& ranks);

  /// Where the ranks meet, as environment variables.
  std::map<std::string, std::string> environment() const;
  /// Called every tenth of a second. True if the ranks that are still running must be ended.
  bool is_over();
  /// Called when all have ended: says on stderr why, unless all is well. Returns the exit code for
  /// main.
  int report();

 private:
  void tell_rank_zero(size_t failed) const;
  int code_of(size_t i) const;
  size_t first_failed() const;

  const StartedRanks& ranks_;
  std::string address_ = "127.0.0.1";
  uint16_t port_ = 0;
  std::unique_ptr<TcpStoreServer> server_;  // null if there are several hosts, as is judge_
  std::unique_ptr<Judge> judge_;
  std::optional<Diagnosis> diagnosis_;
  size_t told_ = 0;  // of ranks_.failed, those that rank 0 knows
};

/// Exit code of a process that has ended: 128 + signal for a signal.
int exit_code_of(int wait_status);

}  // namespace lab
