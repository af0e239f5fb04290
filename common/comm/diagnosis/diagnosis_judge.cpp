// Judge: picks the two looks by which a job is judged.
#include <time.h>

#include <algorithm>

#include "common/comm/diagnosis/diagnosis.h"

namespace lab {
namespace {

constexpr int64_t kBetween = std::chrono::nanoseconds(Judge::kBetweenLooks).count();
constexpr int64_t kLongest = 4 * kBetween;

}  // namespace

std::optional<Diagnosis> Judge::look(std::vector<RankSnapshot> now) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return look(std::move(now), int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec);
}

std::optional<Diagnosis> Judge::look(std::vector<RankSnapshot> now, int64_t now_ns) {
  const bool first = before_.size() != now.size();
  last_taken_ns_.resize(now.size());
  renewals_.resize(now.size());
  for (size_t r = 0; r < now.size(); ++r) {
    if (!first && now[r].taken_ns != last_taken_ns_[r]) ++renewals_[r];
    last_taken_ns_[r] = now[r].taken_ns;
  }
  if (!first && now_ns - before_ns_ < kBetween) return {};

  // Snapshots may take time to arrive: one that was new in the earlier look can be older than
  // another rank's. The second one after it was certainly taken after all of that look's.
  std::optional<Diagnosis> found;
  bool complete = true;
  if (!first) {
    std::vector<RankSnapshot> before = before_;
    for (size_t r = 0; r < now.size(); ++r) {
      if (renewals_[r] >= 2) continue;
      before[r].epoch = now[r].epoch + 1;  // as if it had recorded something
      complete = complete && now[r].waiting() == nullptr;
    }
    found = diagnose(before, now);
  }
  if (first || complete || now_ns - before_ns_ >= kLongest) {
    before_ = std::move(now);
    before_ns_ = now_ns;
    std::ranges::fill(renewals_, 0);
  }
  return found;
}

}  // namespace lab
