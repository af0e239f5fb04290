// Diagnosis: why a job is stuck, from what its ranks were doing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/diagnosis/rank_snapshot.h"

namespace lab {

struct Diagnosis {
  enum class Kind {
    kDeadlock,     // ranks wait for each other in a circle
    kMismatch,     // both sides have arrived, but sizes, tags or kinds differ
    kRankEnded,    // a rank waits for one whose process has ended or left the group
    kRankStopped,  // a rank waits for one that is stopped or silent
  };
  Kind kind = Kind::kDeadlock;
  std::string headline;    // one line: what is wrong
  std::string details;     // lines: up to 8 waiting ranks; the circle; what to do
  std::vector<int> ranks;  // the cause: the circle, in its order, or the rank that is gone

  /// Headline and details, as they are printed.
  std::string text() const;
};

/// "recv(from 1, tag 3, 1,024 bytes, microbatch 2)", "all_reduce #41 (4,096 bytes)"; then
/// " in pipeline 1" unless it belongs to the world. `rank` knows the groups' names.
std::string describe(const OpRecord& op, const RankSnapshot& rank);

/// Judges a job by two looks at all of its ranks (index = rank), at least half a second apart; all
/// snapshots of the first look were taken before any of the second. Empty unless the job can never
/// go on.
///
/// A wait is *blocked* if its counterpart is not posted: for a message, the peer has neither posted
/// nor finished the message of the same group, tag, number and size in the other direction; for a
/// collective, some member has not entered it. (Posted and not waited for counts as posted.)
/// Waiting alone proves nothing: a large message takes its time.
///
/// The job can never go on if the ranks concerned have recorded nothing between the looks, and
/// - blocked waits form a circle: kDeadlock, or kMismatch if two of its messages differ only in tag
///   or group;
/// - or both sides of a message or collective are posted but differ: kMismatch;
/// - or a rank waits, blocked or not, for one that in both looks has exited, was killed, has left,
///   or is stopped or silent, and that has not finished its part. (Having posted it is not enough:
///   the message may break off halfway. Having finished it is: the rest is on its way.)
///
/// Every collective counts as one that no rank leaves before all have entered it; posting it is
/// entering it. A rank that waits for a collective waits for all that its group has queued before
/// it. A rank that computes forever is a matter for a deadline, not for this function.
std::optional<Diagnosis> diagnose(const std::vector<RankSnapshot>& before,
                                  const std::vector<RankSnapshot>& now);

/// Picks the two looks: keeps an earlier one, and calls `diagnose` once half a second has passed.
class TwoLooks {
 public:
  static constexpr std::chrono::milliseconds kBetween{500};

  /// Call it every 50 to 250 ms with a new look, at `now_ns` (nanoseconds, never goes back). Its
  /// snapshots need not be taken at the same time, but must be new: a rank whose `taken_ns` has not
  /// changed twice since the earlier look might have gone on unnoticed, and is not blamed.
  std::optional<Diagnosis> look(std::vector<RankSnapshot> now, int64_t now_ns);

 private:
  std::vector<RankSnapshot> before_;
  int64_t before_ns_ = 0;
  std::vector<int64_t> last_taken_ns_;
  std::vector<int> renewals_;  // of each rank's snapshot since `before_`
};

}  // namespace lab
