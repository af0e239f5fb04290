// What was sent from rank to rank.
#include <map>
#include <utility>

#include "common/pipeline/step_timing.h"

namespace lab {
namespace {

using Links = std::map<std::pair<int, int>, LinkTraffic>;

LinkTraffic& link(Links& links, int from, int to) {
  LinkTraffic& traffic = links[{from, to}];
  traffic.from = from;
  traffic.to = to;
  return traffic;
}

std::vector<int> members_of(uint64_t bits) {
  std::vector<int> members;
  for (int rank = 0; rank < kMaxWorldSize; ++rank)
    if ((bits >> rank & 1U) != 0) members.push_back(rank);
  return members;
}

int next_member(const std::vector<int>& members, int rank) {
  for (const int member : members)
    if (member > rank) return member;
  return members.front();
}

/// What one member does for a collective: each link is counted by the rank that sends on it.
void add_collective(Links& links, const Span& span, int rank) {
  const std::vector<int> members = members_of(span.members);
  const auto n = static_cast<double>(members.size());
  if (members.size() < 2 || !span.collective) return;
  const auto bytes = static_cast<double>(span.bytes);
  const auto send = [&](int to, double sent) {
    LinkTraffic& traffic = link(links, rank, to);
    ++traffic.collectives;
    traffic.collective_bytes += sent;
  };
  switch (*span.collective) {
    case OpKind::kBroadcast:
      for (const int member : members)
        if (rank == span.peer && member != rank) send(member, bytes);
      return;
    case OpKind::kReduce:
      if (rank != span.peer && span.peer >= 0) send(span.peer, bytes);
      return;
    case OpKind::kAllReduce:
      return send(next_member(members, rank), 2 * (n - 1) / n * bytes);
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
      return send(next_member(members, rank), (n - 1) * bytes);
    case OpKind::kBarrier:
    case OpKind::kSplit:
      return send(next_member(members, rank), 0);
    default:
      return;
  }
}

}  // namespace

std::vector<LinkTraffic> link_traffic(const Timeline& timeline) {
  Links links;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    const RankTimeline& own = timeline.ranks[static_cast<size_t>(rank)];
    for (const Span& message : own.messages) {
      if (message.kind != SpanKind::kSend || message.peer < 0) continue;
      LinkTraffic& traffic = link(links, rank, message.peer);
      ++traffic.messages;
      traffic.message_bytes += message.bytes;
    }
    for (const Span& span : own.spans)
      if (span.kind == SpanKind::kCollective) add_collective(links, span, rank);
  }
  std::vector<LinkTraffic> result;
  for (const auto& [ends, traffic] : links) result.push_back(traffic);
  return result;
}

}  // namespace lab
