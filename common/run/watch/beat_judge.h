// BeatJudge: judges a job without a common launcher by what its ranks publish.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/diagnosis/flight_recorder.h"
#include "common/comm/store/store.h"
#include "common/run/rendezvous/rendezvous.h"
#include "common/run/watch/meeting_judge.h"

namespace lab {

/// What a rank publishes every kBeat: a number that grows, and its snapshot.
std::string encode_beat(uint64_t number, const RankSnapshot& snapshot);

/// Runs in rank 0. The kernel says whether a rank on this machine has ended or is stopped. For a
/// rank elsewhere, the launcher of its host may report that it has failed (job_keys::ended);
/// otherwise it counts as silent when its beats stop. While a debugger holds a rank on this
/// machine, or rank 0 itself, time does not count.
class BeatJudge {
 public:
  static constexpr std::chrono::milliseconds kBeat{200};
  static constexpr std::chrono::seconds kSilence{5};

  /// All of them must outlive it.
  BeatJudge(Store& store, const FlightRecorder& own, int rank, std::vector<RankIdentity> ranks);

  /// Call it every kBeat or more often. Returns why the job cannot go on, if it cannot.
  std::optional<Diagnosis> look();

  /// How many other ranks are running and have not left the job.
  int listeners() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Heard {
    uint64_t number = 0;
    Clock::time_point at;
    RankSnapshot snapshot;
  };

  void forget_standstill();
  void listen(int rank);
  struct Fate {
    RankFate fate = RankFate::kRunning;
    int status = -1;  // not known
  };
  Fate fate_of(int rank);
  std::optional<Diagnosis> failure();
  bool is_somebody_overdue() const;

  Store& store_;
  const FlightRecorder& own_;
  int rank_;
  std::vector<RankIdentity> identities_;
  std::vector<Heard> heard_;
  Clock::time_point last_look_ = Clock::now();
  Judge judge_;
  std::optional<Clock::time_point> failure_since_;
  MeetingJudge meetings_;
};

}  // namespace lab
