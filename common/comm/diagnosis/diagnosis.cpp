// Diagnosis: finds out whether, and why, a job can never go on.
#include "common/comm/diagnosis/diagnosis.h"

#include <algorithm>

#include "common/comm/diagnosis/describe.h"
#include "common/comm/diagnosis/diagnosis_advice.h"
#include "common/comm/diagnosis/wait_graph.h"
#include "common/error.h"
#include "common/format.h"

namespace lab {
namespace {

using Kind = Diagnosis::Kind;

bool has_ended(const RankSnapshot& rank) {
  return rank.fate == RankFate::kExited || rank.fate == RankFate::kKilled || rank.left;
}

/// The end that most likely caused the others comes first.
int innocence(const RankSnapshot& rank) {
  if (rank.fate == RankFate::kKilled) return 0;
  if (rank.fate == RankFate::kExited) return rank.status != 0 ? 1 : 2;
  return 3;
}

/// A rank that waits and has recorded nothing between the two looks.
struct Waiter {
  const RankSnapshot* rank = nullptr;
  const OpRecord* op = nullptr;
  std::vector<Counterpart> parts;
};

class Case {
 public:
  Case(const std::vector<RankSnapshot>& before, const std::vector<RankSnapshot>& now)
      : before_(before), now_(now) {
    for (const RankSnapshot& rank : now)
      if (stands_still(rank.rank) && !has_ended(rank) && rank.waiting() != nullptr)
        waiters_.push_back({&rank, holding_up(rank), counterparts(now, rank)});
  }

  std::optional<Diagnosis> rank_ended() const { return rank_gone(has_ended, Kind::kRankEnded); }
  std::optional<Diagnosis> rank_stopped() const { return rank_gone(is_held, Kind::kRankStopped); }
  std::optional<Diagnosis> mismatch() const;
  std::optional<Diagnosis> deadlock() const;

 private:
  bool stands_still(int rank) const {
    const auto r = static_cast<size_t>(rank);
    return before_[r].epoch == now_[r].epoch;
  }
  const RankSnapshot& at(int rank) const { return now_[static_cast<size_t>(rank)]; }

  std::optional<Diagnosis> rank_gone(bool (*gone)(const RankSnapshot&), Kind kind) const;
  std::optional<std::string> different_streams(const Waiter& a, const Waiter& b) const;
  std::string circle_headline(const std::vector<int>& circle) const;
  Diagnosis conclude(Kind kind, std::string headline, std::vector<int> ranks,
                     const std::string& advice) const;

  static constexpr size_t kWaitsShown = 8;  // in a large job; those of the cause come first

  const std::vector<RankSnapshot>& before_;
  const std::vector<RankSnapshot>& now_;
  std::vector<Waiter> waiters_;
};

Diagnosis Case::conclude(Kind kind, std::string headline, std::vector<int> ranks,
                         const std::string& advice) const {
  std::vector<int> waiting;
  for (const RankSnapshot& rank : now_)
    if (!has_ended(rank) && rank.waiting() != nullptr) waiting.push_back(rank.rank);
  std::stable_partition(waiting.begin(), waiting.end(),
                        [&](int rank) { return std::ranges::find(ranks, rank) != ranks.end(); });
  const size_t shown = std::min(waiting.size(), kWaitsShown);
  std::sort(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(shown));
  std::string details;
  for (size_t i = 0; i < shown; ++i) details += describe_wait(now_, at(waiting[i])) + "\n";
  if (const size_t others = waiting.size() - shown; others > 0)
    details += fmt::format("{} {}\n", counted(static_cast<int64_t>(others), "other rank"),
                           others == 1 ? "waits" : "wait");
  if (kind == Kind::kDeadlock) {
    details += "circle: ";
    for (int rank : ranks) details += fmt::format("rank {} -> ", rank);
    details += fmt::format("rank {}\n", ranks[0]);
  }
  return {kind, std::move(headline), details + advice, std::move(ranks)};
}

std::optional<Diagnosis> Case::rank_gone(bool (*gone)(const RankSnapshot&), Kind kind) const {
  const Waiter* found = nullptr;
  const RankSnapshot* cause = nullptr;
  for (const Waiter& waiter : waiters_)
    for (const Counterpart& other : waiter.parts) {
      const RankSnapshot& rank = at(other.rank);
      if (other.part == Part::kDone || !gone(rank) ||
          !gone(before_[static_cast<size_t>(other.rank)]))
        continue;
      if (cause != nullptr && innocence(*cause) <= innocence(rank)) continue;
      found = &waiter;
      cause = &rank;
    }
  if (cause == nullptr) return {};
  return conclude(kind,
                  fmt::format("{} while rank {} waited for it in {}", describe_fate(*cause),
                              found->rank->rank, describe_briefly(*found->op, *found->rank)),
                  {cause->rank}, advice_about(*cause));
}

/// The headline, if one of them sends to the other, but in a different stream from the one in which
/// the other receives.
std::optional<std::string> Case::different_streams(const Waiter& a, const Waiter& b) const {
  const bool facing = is_message(a.op->kind) && is_message(b.op->kind) &&
                      a.op->kind != b.op->kind && a.op->peer == b.rank->rank &&
                      b.op->peer == a.rank->rank;
  if (!facing || !a.parts[0].blocks() || !b.parts[0].blocks()) return {};
  const Waiter& sender = a.op->kind == OpKind::kSend ? a : b;
  const Waiter& receiver = a.op->kind == OpKind::kSend ? b : a;
  if (a.op->group != b.op->group)
    return fmt::format("group mismatch: rank {} sends in {}, rank {} receives in {}",
                       sender.rank->rank, group_name(sender.op->group, *sender.rank),
                       receiver.rank->rank, group_name(receiver.op->group, *receiver.rank));
  if (a.op->tag != b.op->tag)
    return fmt::format("tag mismatch: rank {} sends with tag {}, rank {} receives with tag {}",
                       sender.rank->rank, sender.op->tag, receiver.rank->rank, receiver.op->tag);
  return {};
}

std::optional<Diagnosis> Case::mismatch() const {
  for (const Waiter& waiter : waiters_)
    for (const Counterpart& other : waiter.parts)
      if (other.part == Part::kDiffers && stands_still(other.rank))
        return conclude(
            Kind::kMismatch, mismatch_headline(*waiter.rank, *waiter.op, at(other.rank), *other.op),
            {std::min(waiter.rank->rank, other.rank), std::max(waiter.rank->rank, other.rank)},
            advice_about_mismatch(*waiter.op));
  for (const Waiter& a : waiters_)
    for (const Waiter& b : waiters_)
      if (a.rank->rank < b.rank->rank)
        if (auto headline = different_streams(a, b))
          return conclude(Kind::kMismatch, *headline, {a.rank->rank, b.rank->rank},
                          advice_about_streams(*a.op, *b.op));
  return {};
}

std::string Case::circle_headline(const std::vector<int>& circle) const {
  const auto op = [&](int rank) { return holding_up(at(rank)); };
  const OpRecord& first = *op(circle[0]);
  const bool alike = is_message(first.kind) &&
                     std::ranges::all_of(circle, [&](int r) { return op(r)->kind == first.kind; });
  if (circle.size() == 2 && alike)
    return fmt::format("deadlock: rank {} and rank {} both wait in {} for each other", circle[0],
                       circle[1], op_name(first.kind));
  if (circle.size() == 2)
    return fmt::format("deadlock: rank {} waits for rank {} in {}, rank {} for rank {} in {}",
                       circle[0], circle[1], describe_briefly(first, at(circle[0])), circle[1],
                       circle[0], describe_briefly(*op(circle[1]), at(circle[1])));
  std::vector<int> ranks = circle;
  std::ranges::sort(ranks);
  return fmt::format("deadlock: {} wait{} for each other in a circle", list_ranks(ranks),
                     alike ? fmt::format(" in {}", op_name(first.kind)) : "");
}

std::optional<Diagnosis> Case::deadlock() const {
  std::vector<std::vector<int>> edges(now_.size());
  for (const Waiter& waiter : waiters_)
    for (const Counterpart& other : waiter.parts)
      if (other.blocks()) edges[static_cast<size_t>(waiter.rank->rank)].push_back(other.rank);
  const std::vector<int> circle = shortest_circle(edges);
  if (circle.empty()) return {};
  std::vector<OpKind> kinds;
  for (int rank : circle) kinds.push_back(holding_up(at(rank))->kind);
  const auto has_posted = [this](int rank) {
    return std::ranges::count(at(rank).pending, OpKind::kSend, &OpRecord::kind) > 0;
  };
  return conclude(Kind::kDeadlock, circle_headline(circle), circle,
                  advice_about_circle(kinds, std::ranges::any_of(circle, has_posted)));
}

}  // namespace

std::string Diagnosis::text() const {
  std::string text = headline;
  size_t begin = 0;
  while (begin < details.size()) {
    const size_t end = std::min(details.find('\n', begin), details.size());
    text += "\n  " + details.substr(begin, end - begin);
    begin = end + 1;
  }
  return text;
}

std::optional<Diagnosis> diagnose(const std::vector<RankSnapshot>& before,
                                  const std::vector<RankSnapshot>& now) {
  require(before.size() == now.size(), "diagnose: looks at {} and {} ranks", before.size(),
          now.size());
  for (size_t rank = 0; rank < now.size(); ++rank)
    require(now[rank].rank == static_cast<int>(rank), "diagnose: snapshot {} is rank {}'s", rank,
            now[rank].rank);
  const Case evidence(before, now);
  if (auto found = evidence.rank_ended()) return found;
  if (auto found = evidence.mismatch()) return found;
  if (auto found = evidence.deadlock()) return found;
  return evidence.rank_stopped();
}

std::optional<Diagnosis> TwoLooks::look(std::vector<RankSnapshot> now, int64_t now_ns) {
  const int64_t between = std::chrono::nanoseconds(kBetween).count();
  const bool first = before_.size() != now.size();
  last_taken_ns_.resize(now.size());
  renewals_.resize(now.size());
  for (size_t r = 0; r < now.size(); ++r) {
    if (!first && now[r].taken_ns != last_taken_ns_[r]) ++renewals_[r];
    last_taken_ns_[r] = now[r].taken_ns;
  }
  if (!first && now_ns - before_ns_ < between) return {};

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
  if (first || complete || now_ns - before_ns_ >= 4 * between) {
    before_ = std::move(now);
    before_ns_ = now_ns;
    std::ranges::fill(renewals_, 0);
  }
  return found;
}

}  // namespace lab
