// Judges by heartbeats, the state of processes, and two looks.
#include "common/run/watch/beat_judge.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/run/rendezvous/job_keys.h"
#include "common/run/rendezvous/process_state.h"

namespace lab {
namespace {

// The real cause of a reported failure shows within this time.
constexpr std::chrono::milliseconds kFailurePatience{1500};
// A rank whose last beat is older than this may be silent.
constexpr auto kOverdue = 5 * BeatJudge::kBeat;
// Time between two looks. If more has passed, this process itself was held up.
constexpr std::chrono::milliseconds kLongestBreak{500};

}  // namespace

std::string encode_beat(uint64_t number, const RankSnapshot& snapshot) {
  return fmt::format("{} ", number) + encode_snapshot(snapshot);
}

BeatJudge::BeatJudge(Store& store, const FlightRecorder& own, int rank,
                     std::vector<RankIdentity> ranks)
    : store_(store),
      own_(own),
      rank_(rank),
      identities_(std::move(ranks)),
      heard_(identities_.size()),
      meetings_(identities_.size()) {
  for (size_t i = 0; i < heard_.size(); ++i) {
    heard_[i].at = Clock::now();
    heard_[i].snapshot.rank = static_cast<int>(i);
    heard_[i].snapshot.pid = identities_[i].pid;
  }
}

/// Reports of other ranks from the meantime are read only now; if rank 0 serves the store, they
/// could not even be delivered.
void BeatJudge::forget_standstill() {
  const auto now = Clock::now();
  const auto gap = now - std::exchange(last_look_, now);
  if (gap <= kLongestBreak) return;
  for (Heard& heard : heard_) heard.at += gap - kLongestBreak;
}

void BeatJudge::listen(int rank) {
  Heard& heard = heard_[static_cast<size_t>(rank)];
  if (rank == rank_) {
    heard.snapshot = own_.snapshot();
  } else if (const auto text = store_.try_get(job_keys::beat(rank))) {
    uint64_t number = 0;
    const auto end = std::from_chars(text->data(), text->data() + text->size(), number).ptr;
    if (number != heard.number) {
      heard.number = number;
      heard.at = Clock::now();
      heard.snapshot = decode_snapshot(text->substr(static_cast<size_t>(end - text->data()) + 1));
    }
  }
  const auto [fate, status] = fate_of(rank);
  heard.snapshot.fate = fate;
  // A rank that is gone does nothing any more: its last report stays true.
  if (heard.snapshot.fate != RankFate::kRunning)
    heard.snapshot.taken_ns = Clock::now().time_since_epoch().count();
  heard.snapshot.status = status;
  if (heard.snapshot.left) heard.snapshot.status = 0;
}

BeatJudge::Fate BeatJudge::fate_of(int rank) {
  if (rank == rank_) return {};
  if (const auto text = store_.try_get(job_keys::ended(rank))) {
    const int status = std::stoi(*text);
    if (WIFSIGNALED(status)) return {RankFate::kKilled, WTERMSIG(status)};
    return {RankFate::kExited, WEXITSTATUS(status)};
  }
  const RankIdentity& identity = identities_[static_cast<size_t>(rank)];
  Heard& heard = heard_[static_cast<size_t>(rank)];
  if (identity.space == identities_[static_cast<size_t>(rank_)].space) {
    const ProcessState state = process_state(identity.pid);
    if (state == ProcessState::kGone) return {RankFate::kExited};
    if (state == ProcessState::kStopped) return {RankFate::kStopped};
    if (state == ProcessState::kTraced) {
      heard.at = Clock::now();
      return {};
    }
  }
  const auto silence = Clock::now() - heard.at;
  if (heard.snapshot.left || silence <= kSilence) return {};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silence).count();
  return {RankFate::kSilent, static_cast<int>(seconds)};
}

std::optional<Diagnosis> BeatJudge::look() {
  forget_standstill();
  std::vector<RankSnapshot> now;
  for (size_t i = 0; i < heard_.size(); ++i) {
    listen(static_cast<int>(i));
    now.push_back(heard_[i].snapshot);
  }
  if (auto diagnosis = judge_.look(now)) return diagnosis;
  if (auto diagnosis = meetings_.look(store_, now)) return diagnosis;
  return failure();
}

/// A rank that an exception has ended reports it itself.
std::optional<Diagnosis> BeatJudge::failure() {
  if (!store_.try_get(job_keys::kFailures)) return std::nullopt;
  const auto now = Clock::now();
  if (!failure_since_) failure_since_ = now;
  if (now < *failure_since_ + kFailurePatience || is_somebody_overdue()) return std::nullopt;
  for (size_t i = 0; i < identities_.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (store_.try_get(job_keys::failed(rank)) != "1") continue;
    return Diagnosis{.kind = Diagnosis::Kind::kRankEnded,
                     .headline = fmt::format("rank {} has ended with an error of its own", rank),
                     .details = "",
                     .ranks = {rank}};
  }
  return std::nullopt;
}

/// When a host is gone, its broken connections show first: as errors of the remaining ranks.
bool BeatJudge::is_somebody_overdue() const {
  const auto now = Clock::now();
  return std::ranges::any_of(heard_, [&](const Heard& heard) {
    const RankFate fate = heard.snapshot.fate;
    if (heard.snapshot.rank == rank_ || heard.snapshot.left) return false;
    if (fate != RankFate::kRunning && fate != RankFate::kSilent) return false;
    return now > heard.at + kOverdue && now < heard.at + kSilence + kFailurePatience;
  });
}

int BeatJudge::listeners() const {
  int count = 0;
  for (const Heard& heard : heard_)
    if (heard.snapshot.rank != rank_ && heard.snapshot.fate == RankFate::kRunning &&
        !heard.snapshot.left)
      ++count;
  return count;
}

}  // namespace lab
