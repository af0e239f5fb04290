// Compares the ranks that are gone with those still waiting.
#include "common/run/watch/meeting_judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/comm/diagnosis/describe.h"
#include "common/run/rendezvous/job_keys.h"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{1};

bool is_lost(const RankSnapshot& rank) {
  return !rank.left && rank.fate != RankFate::kRunning && rank.fate != RankFate::kUnknown;
}

}  // namespace

std::optional<Diagnosis> MeetingJudge::look(Store& store, const std::vector<RankSnapshot>& ranks) {
  const auto lost = std::ranges::find_if(ranks, is_lost);
  if (lost == ranks.end()) {
    std::ranges::fill(meetings_, Meeting{});
    return std::nullopt;
  }
  const auto now = Clock::now();
  std::string details;
  for (const RankSnapshot& rank : ranks) {
    const auto index = static_cast<size_t>(rank.rank);
    const std::string what = store.try_get(job_keys::meeting(rank.rank)).value_or("");
    if (what != meetings_[index].what) meetings_[index] = {what, now};
    if (rank.fate != RankFate::kRunning || what.empty() || now < meetings_[index].since + kPatience)
      continue;
    details += fmt::format("rank {} waits in {}\n", rank.rank, what);
  }
  if (details.empty()) return std::nullopt;
  const bool stopped = lost->fate == RankFate::kStopped || lost->fate == RankFate::kSilent;
  return Diagnosis{.kind = stopped ? Diagnosis::Kind::kRankStopped : Diagnosis::Kind::kRankEnded,
                   .headline = fmt::format("{} while others waited for it", describe_fate(*lost)),
                   .details = details,
                   .ranks = {lost->rank}};
}

}  // namespace lab
