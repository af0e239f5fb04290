// MeetingJudge: finds ranks that wait, outside their process groups, for one that will never
// arrive.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/store/store.h"

namespace lab {

/// Flight records do not cover the rendezvous, connecting, and comparisons by Job::agree, where
/// ranks meet through the store. If one has ended or is stopped before it has left the job in good
/// order, and another has been waiting in a meeting for a second, the job cannot go on.
class MeetingJudge {
 public:
  explicit MeetingJudge(size_t world_size) : meetings_(world_size) {}

  /// Call it every 50 to 250 ms.
  std::optional<Diagnosis> look(Store& store, const std::vector<RankSnapshot>& ranks);

 private:
  struct Meeting {
    std::string what;  // "": in none
    std::chrono::steady_clock::time_point since;
  };

  std::vector<Meeting> meetings_;
};

}  // namespace lab
