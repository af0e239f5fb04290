// Judge: reads the store, adds what is known about the processes, and looks twice.
#include "common/run/watch/judge.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "common/comm/diagnosis/describe.h"
#include "common/parse_number.h"
#include "common/printable.h"
#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/process_state.h"

namespace lab {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kInVain{1000};  // in a meeting
// The real cause of a reported error shows within this time.
constexpr milliseconds kCauseShows{1500};
// A rank on another machine that has published nothing for longer may be silent.
constexpr milliseconds kOverdue{1000};
// Time between two looks. If more has passed, this process itself was held up.
constexpr milliseconds kLongestBreak{500};

bool has_ended(const RankSnapshot& rank) {
  return rank.fate == RankFate::kExited || rank.fate == RankFate::kKilled;
}

}  // namespace

Fate fate_of_ended(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {RankFate::kKilled, WTERMSIG(wait_status)};
  return {RankFate::kExited, WEXITSTATUS(wait_status)};
}

Fate fate_of_process(int64_t pid) {
  const ProcessState state = process_state(pid);
  if (state == ProcessState::kGone) return {RankFate::kExited, -1};
  return {state == ProcessState::kStopped ? RankFate::kStopped : RankFate::kRunning};
}

Judge::Judge(Store& store, int ranks, FateOf fate_of)
    : store_(store),
      fate_of_(std::move(fate_of)),
      ranks_(static_cast<size_t>(ranks)),
      heard_(ranks_.size()),
      meetings_(ranks_.size()) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].rank = static_cast<int>(rank);
}

/// What other ranks published in the meantime is read only now; if rank 0 serves the store, it
/// could not even be delivered.
void Judge::forget_standstill() {
  const auto now = Clock::now();
  const auto gap = now - std::exchange(last_look_, now);
  if (gap <= kLongestBreak) return;
  for (Heard& heard : heard_) heard.at += gap - kLongestBreak;
}

const std::vector<RankSnapshot>& Judge::read() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) read(ranks_[rank], heard_[rank]);
  return ranks_;
}

void Judge::read(RankSnapshot& rank, Heard& heard) {
  const int number = rank.rank;
  // First its process: what it publishes just before its end must not be missed.
  const auto reported = parse_number<int64_t>(store_.try_get(job_keys::ended(number)).value_or(""));
  const auto known = reported ? fate_of_ended(static_cast<int>(*reported)) : fate_of_(number);
  const auto text = store_.try_get(job_keys::snapshot(number));
  if (text && *text != heard.text) {
    heard = {*text, Clock::now()};
    rank = decode_snapshot(*text);
    rank.rank = number;
  }
  heard.is_far = !known;
  const auto silence = Clock::now() - heard.at;
  Fate fate = known.value_or(Fate{});
  if (!known && !rank.left && silence > kSilence)
    fate = {RankFate::kSilent, static_cast<int>(silence / std::chrono::seconds(1))};
  if (rank.left && fate.status < 0) fate.status = 0;
  rank.fate = fate.fate;
  rank.status = fate.status;
  // A rank that does nothing any more publishes nothing: what it has published stays true.
  if (rank.fate != RankFate::kRunning) rank.taken_ns = Clock::now().time_since_epoch().count();
}

std::optional<Diagnosis> Judge::look() {
  forget_standstill();
  read();
  if (auto found = looks_.look(ranks_, Clock::now().time_since_epoch().count())) return found;
  return missed_in_meeting();
}

std::optional<Diagnosis> Judge::missed_in_meeting() {
  const auto lost = std::ranges::find_if(ranks_, [](const RankSnapshot& rank) {
    return !rank.left && (has_ended(rank) || is_held(rank));
  });
  if (lost == ranks_.end()) {
    std::ranges::fill(meetings_, Meeting{});
    return std::nullopt;
  }
  const auto now = Clock::now();
  std::string details;
  for (const RankSnapshot& rank : ranks_) {
    Meeting& meeting = meetings_[static_cast<size_t>(rank.rank)];
    const std::string what = printable(store_.try_get(job_keys::meeting(rank.rank)).value_or(""));
    if (what != meeting.what) meeting = {what, now};
    if (rank.fate == RankFate::kRunning && !what.empty() && now >= meeting.since + kInVain)
      details += fmt::format("rank {} waits in {}\n", rank.rank, what);
  }
  if (details.empty()) return std::nullopt;
  return Diagnosis{
      .kind = is_held(*lost) ? Diagnosis::Kind::kRankStopped : Diagnosis::Kind::kRankEnded,
      .headline = fmt::format("{} while others waited for it", describe_fate(*lost)),
      .details = details,
      .ranks = {lost->rank}};
}

std::optional<Diagnosis> Judge::explain_end() {
  std::vector<RankSnapshot> ranks = read();
  for (RankSnapshot& rank : ranks)
    if (rank.waiting() != nullptr && store_.try_get(job_keys::failed(rank.rank))) {
      rank.fate = RankFate::kRunning;
      rank.left = false;
    }
  auto found = diagnose(ranks, ranks);
  if (found && found->kind != Diagnosis::Kind::kRankEnded) found.reset();
  return found;
}

std::optional<Diagnosis> Judge::rank_with_error() {
  if (!store_.try_get(job_keys::kFailures)) return std::nullopt;
  const auto now = Clock::now();
  if (!error_since_) error_since_ = now;
  if (now < *error_since_ + kCauseShows || is_somebody_overdue()) return std::nullopt;
  for (const RankSnapshot& rank : ranks_)
    if (store_.try_get(job_keys::failed(rank.rank)) == "1")
      return Diagnosis{
          .kind = Diagnosis::Kind::kRankEnded,
          .headline = fmt::format("rank {} has ended with an error of its own", rank.rank),
          .details = "",
          .ranks = {rank.rank}};
  return std::nullopt;
}

/// When a host is gone, its broken connections show first: as errors of the remaining ranks.
bool Judge::is_somebody_overdue() const {
  const auto now = Clock::now();
  return std::ranges::any_of(ranks_, [&](const RankSnapshot& rank) {
    const Heard& heard = heard_[static_cast<size_t>(rank.rank)];
    return heard.is_far && !rank.left && now > heard.at + kOverdue &&
           now < heard.at + kSilence + kCauseShows;
  });
}

}  // namespace lab
