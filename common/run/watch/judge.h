// Judge: finds out from what the ranks of a job publish whether it can go on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/store/store.h"

namespace lab {

/// Of a process that has ended. `wait_status`: as from waitpid.
Fate fate_of_ended(int wait_status);
/// Of another process on this machine, according to the kernel. In a debugger, it counts as
/// running.
Fate fate_of_process(int64_t pid);

/// Every rank publishes its snapshot in the job's store (Watchdog). One judge reads them: that of
/// the launcher, if it has started all ranks, else that of rank 0's watchdog.
class Judge {
 public:
  static constexpr std::chrono::milliseconds kBeat{100};  // between two snapshots of a rank
  static constexpr std::chrono::seconds kSilence{5};

  /// `fate_of(rank)`: what can be seen of the rank's process; nothing if it is on another machine.
  /// Such a rank has ended if the launcher there says so (job_keys::ended), and counts as silent
  /// once its snapshots stop for kSilence. While the judge's own process is held up, in a debugger
  /// for example, time does not count.
  using FateOf = std::function<std::optional<Fate>(int rank)>;

  /// `store` and what `fate_of` refers to must outlive it.
  Judge(Store& store, int ranks, FateOf fate_of);

  /// Call it every 50 to 250 ms. Returns why the job cannot go on, if it cannot:
  /// - what `diagnose` finds in two looks;
  /// - or, outside process groups (in the rendezvous, while connecting, in Job::agree), a rank has
  ///   been waiting for a second although another one has ended or is stopped.
  std::optional<Diagnosis> look();

  /// After a rank has ended: which one ended first, if another waited for it. Needs one look only.
  /// Ranks that an exception ended while they waited count as waiting: the end of another rank has
  /// probably caused it.
  std::optional<Diagnosis> explain_end();

  /// For ranks whose exit code the judge will not see: an exception has ended a rank, and within
  /// 1.5 s nothing else explains it. `details` is empty: the rank prints the error itself.
  std::optional<Diagnosis> rank_with_error();

  /// What the ranks have published last, and what became of their processes; the index is the rank.
  const std::vector<RankSnapshot>& read();

 private:
  using Clock = std::chrono::steady_clock;
  struct Heard {
    std::string text;
    Clock::time_point at = Clock::now();
    bool is_far = false;  // nothing is known about its process
  };
  struct Meeting {
    std::string what;  // "": in none
    Clock::time_point since;
  };

  void forget_standstill();
  void read(RankSnapshot& rank, Heard& heard);
  std::optional<Diagnosis> missed_in_meeting();
  bool is_somebody_overdue() const;

  Store& store_;
  FateOf fate_of_;
  std::vector<RankSnapshot> ranks_;
  std::vector<Heard> heard_;
  std::vector<Meeting> meetings_;
  TwoLooks looks_;
  Clock::time_point last_look_ = Clock::now();
  std::optional<Clock::time_point> error_since_;
};

}  // namespace lab
