// WaitGraph: matches operations of different ranks, and finds circles.
#include "common/comm/diagnosis/wait_graph.h"

#include <algorithm>
#include <deque>

namespace lab {
namespace {

/// `peer`'s part in a message that rank `waiter` waits for.
Counterpart message_part(const RankSnapshot& peer, int waiter, const OpRecord& op) {
  const OpKind kind = op.kind == OpKind::kSend ? OpKind::kRecv : OpKind::kSend;
  const auto in_stream = [&](const OpRecord& other) {
    return other.kind == kind && other.group == op.group && other.peer == waiter &&
           other.tag == op.tag;
  };
  bool passed = false;  // messages of a stream are posted in the order of their numbers
  const OpRecord* in_another = nullptr;
  for (const OpRecord& other : peer.pending) {
    if (!in_stream(other)) {
      if (in_another == nullptr && other.kind == kind && other.peer == waiter) in_another = &other;
      continue;
    }
    if (other.sequence == op.sequence)
      return {peer.rank, other.bytes == op.bytes ? Part::kUnderWay : Part::kDiffers, &other};
    passed |= other.sequence > op.sequence;
  }
  for (const OpRecord& other : peer.recent)
    passed |= in_stream(other) && other.sequence >= op.sequence;
  if (passed) return {peer.rank, Part::kDone, nullptr};
  return {peer.rank, Part::kNotPosted, in_another};
}

/// A member's part in a collective.
Counterpart collective_part(const RankSnapshot& member, const OpRecord& op) {
  const GroupRecord* group = find_group(member.groups, op.group);
  if (group == nullptr || group->collectives < op.sequence)
    return {member.rank, Part::kNotPosted, nullptr};
  for (const OpRecord& other : member.pending) {
    if (!is_collective(other.kind) || other.group != op.group || other.sequence != op.sequence)
      continue;
    if (other.finished_ns != 0) break;
    const bool same = other.kind == op.kind && other.bytes == op.bytes && other.peer == op.peer &&
                      other.tag == op.tag;
    return {member.rank, same ? Part::kUnderWay : Part::kDiffers, &other};
  }
  return {member.rank, Part::kDone, nullptr};
}

/// The shortest way from `start` back to it; empty if there is none.
std::vector<int> circle_through(const std::vector<std::vector<int>>& edges, int start) {
  std::vector<int> came_from(edges.size(), -1);
  std::deque<int> next{start};
  while (!next.empty()) {
    const int at = next.front();
    next.pop_front();
    for (int to : edges[static_cast<size_t>(at)]) {
      if (to == start) {
        std::vector<int> circle;
        for (int rank = at; rank != start; rank = came_from[static_cast<size_t>(rank)])
          circle.push_back(rank);
        circle.push_back(start);
        std::ranges::reverse(circle);
        return circle;
      }
      if (came_from[static_cast<size_t>(to)] >= 0) continue;
      came_from[static_cast<size_t>(to)] = at;
      next.push_back(to);
    }
  }
  return {};
}

}  // namespace

const OpRecord* holding_up(const RankSnapshot& waiter) {
  const OpRecord* first = waiter.waiting();
  if (first == nullptr || !is_collective(first->kind)) return first;
  const uint32_t group = first->group;
  for (const OpRecord& op : waiter.pending)
    if (is_collective(op.kind) && op.group == group && op.finished_ns == 0 &&
        op.sequence < first->sequence)
      first = &op;
  return first;
}

std::vector<Counterpart> counterparts(const std::vector<RankSnapshot>& job,
                                      const RankSnapshot& waiter) {
  const OpRecord* op = holding_up(waiter);
  if (op == nullptr) return {};
  const int size = static_cast<int>(job.size());
  if (is_message(op->kind)) {
    if (op->peer < 0 || op->peer >= size) return {};
    return {message_part(job[static_cast<size_t>(op->peer)], waiter.rank, *op)};
  }
  const GroupRecord* group = find_group(waiter.groups, op->group);
  if (!is_collective(op->kind) || group == nullptr) return {};
  std::vector<Counterpart> parts;
  for (int rank = 0; rank < std::min(size, kMaxWorldSize); ++rank)
    if ((group->members >> rank & 1) != 0 && rank != waiter.rank)
      parts.push_back(collective_part(job[static_cast<size_t>(rank)], *op));
  return parts;
}

std::vector<int> shortest_circle(const std::vector<std::vector<int>>& edges) {
  std::vector<int> shortest;
  for (int start = 0; start < static_cast<int>(edges.size()); ++start) {
    std::vector<int> circle = circle_through(edges, start);
    if (!circle.empty() && (shortest.empty() || circle.size() < shortest.size()))
      shortest = std::move(circle);
  }
  return shortest;
}

}  // namespace lab
