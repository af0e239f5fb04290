// FlightRecorder: pending operations by id, the newest message of each stream, a history of limited
// length.
#include "common/comm/diagnosis/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "common/error.h"

namespace lab {
namespace {

/// Messages that arrive in the order in which they are sent: kind, group, peer, tag.
using Stream = std::tuple<OpKind, uint32_t, int32_t, int32_t>;

/// Makes a name printable on one line.
std::string clean_name(std::string name) {
  if (name.size() > kMaxGroupName) {
    size_t end = kMaxGroupName;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;  // UTF-8
    name.resize(end);
  }
  std::ranges::replace_if(
      name, [](unsigned char c) { return c < ' ' || c == 127; }, '?');
  return name;
}

}  // namespace

int64_t monotonic_now_ns() {
  // libstdc++'s and libc++'s steady_clock is CLOCK_MONOTONIC.
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct FlightRecorder::Impl {
  mutable std::mutex mutex;
  Clock clock;
  RankSnapshot record;                   // all but what is pending, recent, and when it was taken
  std::map<uint64_t, OpRecord> pending;  // by id
  std::deque<OpRecord> history;
  std::map<Stream, OpRecord> recent;  // the newest finished message of each
  uint64_t last_id = 0;

  void keep_as_recent(const OpRecord& op);
  /// Changes a pending operation, which gets the time.
  template <typename Change>
  void change(uint64_t id, const Change& change) {
    const std::lock_guard lock(mutex);
    const auto found = pending.find(id);
    if (found == pending.end()) return;
    change(found->second, clock());
    ++record.epoch;
  }
};

void FlightRecorder::Impl::keep_as_recent(const OpRecord& op) {
  OpRecord& newest = recent[{op.kind, op.group, op.peer, op.tag}];
  const bool older = newest.id != 0 && newest.sequence > op.sequence;  // waited for out of order
  if (!older) newest = op;
  if (recent.size() <= kMaxRecent) return;
  recent.erase(std::ranges::min_element(recent, {}, [](const auto& stream) {
    return std::pair(stream.second.done_ns, stream.second.id);
  }));
}

FlightRecorder::FlightRecorder(int rank, Clock clock) : impl_(std::make_unique<Impl>()) {
  require(rank >= 0 && rank < kMaxWorldSize, "flight record: rank {} lies outside [0, {}]", rank,
          kMaxWorldSize - 1);
  impl_->clock = clock ? std::move(clock) : Clock(monotonic_now_ns);
  impl_->record.rank = rank;
  impl_->record.pid = getpid();
}

FlightRecorder::~FlightRecorder() = default;

void FlightRecorder::add_group(uint32_t id, uint64_t members, const std::string& name) {
  const std::lock_guard lock(impl_->mutex);
  GroupRecord* group = find_group(impl_->record.groups, id);
  if (group == nullptr) {
    require(impl_->record.groups.size() < kMaxGroups,
            "rank {} belongs to more than {} groups: split once, before the loop",
            impl_->record.rank, kMaxGroups);
    group = &impl_->record.groups.emplace_back();
  }
  group->id = id;
  group->members = members;
  group->name = clean_name(name);
  ++impl_->record.epoch;
}

uint64_t FlightRecorder::posted(OpRecord op) {
  const std::lock_guard lock(impl_->mutex);
  RankSnapshot& record = impl_->record;
  GroupRecord* group = is_collective(op.kind) ? find_group(record.groups, op.group) : nullptr;
  require(!is_collective(op.kind) || group != nullptr,
          "flight record of rank {}: {} in a group that it does not know", record.rank,
          op_name(op.kind));
  require(impl_->pending.size() < kMaxPending,
          "more than 1,024 operations are pending on rank {}: is something posted and never waited "
          "for?",
          record.rank);
  op.id = ++impl_->last_id;
  op.state = OpState::kPosted;
  op.posted_ns = impl_->clock();
  op.started_ns = op.finished_ns = op.waiting_ns = op.done_ns = 0;
  impl_->pending.emplace(op.id, op);
  if (group != nullptr) group->collectives = std::max(group->collectives, op.sequence);
  Traffic& traffic = record.traffic[static_cast<size_t>(op.kind)];
  ++traffic.operations;
  traffic.bytes += op.bytes;
  ++record.epoch;
  return op.id;
}

void FlightRecorder::started(uint64_t id, int64_t at_ns) {
  impl_->change(id, [=](OpRecord& op, int64_t now) { op.started_ns = at_ns != 0 ? at_ns : now; });
}

void FlightRecorder::finished(uint64_t id, int64_t at_ns) {
  impl_->change(id, [=](OpRecord& op, int64_t now) { op.finished_ns = at_ns != 0 ? at_ns : now; });
}

void FlightRecorder::waiting(uint64_t id) {
  impl_->change(id, [](OpRecord& op, int64_t now) {
    op.state = OpState::kWaiting;
    op.waiting_ns = now;
  });
}

void FlightRecorder::done(uint64_t id) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->pending.find(id);
  if (found == impl_->pending.end()) return;
  OpRecord op = found->second;
  impl_->pending.erase(found);
  op.state = OpState::kDone;
  op.done_ns = impl_->clock();
  if (is_message(op.kind)) impl_->keep_as_recent(op);
  if (impl_->history.size() == kHistory) impl_->history.pop_front();
  impl_->history.push_back(op);
  ++impl_->record.epoch;
}

void FlightRecorder::leave() {
  const std::lock_guard lock(impl_->mutex);
  impl_->record.left = true;
  ++impl_->record.epoch;
}

RankSnapshot FlightRecorder::snapshot() const {
  const std::lock_guard lock(impl_->mutex);
  RankSnapshot snapshot = impl_->record;
  for (const auto& [id, op] : impl_->pending) snapshot.pending.push_back(op);
  for (const auto& [stream, op] : impl_->recent) snapshot.recent.push_back(op);
  std::ranges::sort(snapshot.recent, [](const OpRecord& a, const OpRecord& b) {
    return std::pair(a.done_ns, a.id) > std::pair(b.done_ns, b.id);
  });
  snapshot.taken_ns = impl_->clock();
  return snapshot;
}

std::vector<OpRecord> FlightRecorder::history() const {
  const std::lock_guard lock(impl_->mutex);
  return {impl_->history.begin(), impl_->history.end()};
}

}  // namespace lab
