// Copies a flight record that may be written at the same time.
#include "common/comm/diagnosis/flight_record_layout.h"

#include <sched.h>

#include <algorithm>
#include <bit>

namespace lab {
namespace {

using Layout = FlightRecordLayout;

constexpr int kAttempts = 1000;

bool plausible(const OpRecord& op) {
  return op.id != 0 && static_cast<size_t>(op.kind) < kOpKinds && op.state <= OpState::kDone &&
         op.peer >= -1 && op.peer < kMaxWorldSize;
}

GroupRecord to_record(const Layout::Group& group) {
  const auto end = std::ranges::find(group.name, '\0');
  return {.id = static_cast<uint32_t>(group.id),
          .members = group.members,
          .collectives = group.collectives,
          .name = std::string(group.name.begin(), std::min(end, group.name.end() - 1))};
}

void copy_parts(const Layout& record, RankSnapshot& out) {
  const Layout::Head head = record.head.load();
  out.rank = static_cast<int>(head.rank);
  out.pid = head.pid;
  out.left = head.left != 0;
  for (size_t i = 0; i < kOpKinds; ++i) out.traffic[i] = record.traffic[i].load();

  out.groups.clear();
  const size_t groups = std::min<size_t>(record.group_count.load(), kMaxGroups);
  for (size_t i = 0; i < groups; ++i) out.groups.push_back(to_record(record.groups[i].load()));

  out.pending.clear();
  for (size_t word = 0; word < record.used.size(); ++word)
    for (uint64_t bits = record.used[word].load(); bits != 0; bits &= bits - 1)
      out.pending.push_back(
          record.pending[64 * word + static_cast<size_t>(std::countr_zero(bits))].load());

  out.recent.clear();
  const size_t recent = std::min<size_t>(record.recent_count.load(), kMaxRecent);
  for (size_t i = 0; i < recent; ++i) out.recent.push_back(record.recent[i].load());
}

}  // namespace

RankSnapshot copy_snapshot(const Layout& record) {
  RankSnapshot snapshot;
  uint64_t version = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    version = record.version.load(std::memory_order_acquire);
    if (version % 2 != 0 && attempt + 1 < kAttempts) {
      sched_yield();
      continue;
    }
    copy_parts(record, snapshot);
    if (version == record.version.load(std::memory_order_relaxed)) break;
  }
  snapshot.epoch = version / 2;
  const auto bad = [](const OpRecord& op) { return !plausible(op); };
  std::erase_if(snapshot.pending, bad);
  std::erase_if(snapshot.recent, bad);
  std::ranges::sort(snapshot.pending, {}, &OpRecord::id);
  std::ranges::sort(snapshot.recent, [](const OpRecord& a, const OpRecord& b) {
    return std::pair(a.done_ns, a.id) > std::pair(b.done_ns, b.id);
  });
  return snapshot;
}

std::vector<OpRecord> copy_history(const Layout& record) {
  const uint64_t version = record.version.load(std::memory_order_acquire);
  const uint64_t end = record.history_count.load();
  uint64_t first = end - std::min<uint64_t>(end, Layout::kHistory);
  std::vector<OpRecord> history;
  history.reserve(end - first);
  for (uint64_t i = first; i < end; ++i)
    history.push_back(record.history[i % Layout::kHistory].load());

  // The oldest entries are left out: they may have been overwritten during the copy.
  if (version % 2 != 0 || version != record.version.load(std::memory_order_relaxed)) {
    const uint64_t oldest = record.history_count.load() + 1;  // one may be being written
    const uint64_t intact = oldest - std::min<uint64_t>(oldest, Layout::kHistory);
    const uint64_t lost = std::min(std::max(intact, first), end) - first;
    history.erase(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(lost));
  }
  std::erase_if(history, [](const OpRecord& op) { return !plausible(op); });
  return history;
}

}  // namespace lab
