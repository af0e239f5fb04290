#include "common/pipeline/standstill.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace lab {
namespace {

// Messages with the same sender, receiver and microbatch are matched by their order.
using Stream = std::tuple<SpanKind, int, int, int>;

// What `side`, kSend or kRecv, posts of the stream that the rank's message belongs to.
Stream stream_of(SpanKind side, const Span& message, int rank) {
  return message.kind == SpanKind::kSend ? Stream{side, rank, message.peer, message.microbatch}
                                         : Stream{side, message.peer, rank, message.microbatch};
}

// When the messages of every stream were posted, by sender and receiver.
class Postings {
 public:
  explicit Postings(const Timeline& timeline) {
    for (int rank = 0; rank < timeline.rank_count(); ++rank)
      for (const Span& message : timeline.ranks[static_cast<size_t>(rank)].messages)
        posted_[stream_of(message.kind, message, rank)].push_back(message);
  }

  // The message that a span waited for is the one of its stream that ended when the span did.
  std::optional<double> other_side_of(const Span& span, int rank) const {
    const SpanKind other_side = span.kind == SpanKind::kSend ? SpanKind::kRecv : SpanKind::kSend;
    const auto own = posted_.find(stream_of(span.kind, span, rank));
    const auto other = posted_.find(stream_of(other_side, span, rank));
    if (own == posted_.end() || other == posted_.end()) return std::nullopt;
    const auto place = std::ranges::find(own->second, span.end, &Span::end);
    const auto number = static_cast<size_t>(place - own->second.begin());
    if (place == own->second.end() || number >= other->second.size()) return std::nullopt;
    return other->second[number].start;
  }

 private:
  std::map<Stream, std::vector<Span>> posted_;
};

// When the last member has entered the n-th collective of a set of members.
class Entries {
 public:
  explicit Entries(const Timeline& timeline) {
    for (const RankTimeline& rank : timeline.ranks) {
      std::map<uint64_t, size_t> counts;
      for (const Span& span : rank.spans) {
        if (span.kind != SpanKind::kCollective) continue;
        double& latest = latest_[{span.members, counts[span.members]++}];
        latest = std::max(latest, span.start);
      }
    }
  }

  double last_entry(uint64_t members, size_t number) const { return latest_.at({members, number}); }

 private:
  std::map<std::pair<uint64_t, size_t>, double> latest_;
};

}  // namespace

std::vector<std::vector<double>> counterpart_times(const Timeline& timeline) {
  const Postings postings(timeline);
  const Entries entries(timeline);
  std::vector<std::vector<double>> times;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    std::vector<double>& own = times.emplace_back();
    std::map<uint64_t, size_t> counts;
    for (const Span& span : timeline.ranks[static_cast<size_t>(rank)].spans) {
      double there = span.start;
      if (span.kind == SpanKind::kCollective) {
        const size_t number = counts[span.members]++;
        there = span.members == 0 ? span.end : entries.last_entry(span.members, number);
      } else if (!is_compute(span.kind)) {
        there = postings.other_side_of(span, rank).value_or(span.end);
      }
      own.push_back(std::clamp(there, span.start, std::max(span.start, span.end)));
    }
  }
  return times;
}

}  // namespace lab
