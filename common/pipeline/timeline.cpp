#include "common/pipeline/timeline.h"

#include <algorithm>
#include <array>

namespace lab {
std::string_view span_name(SpanKind kind) {
  static constexpr std::array<std::string_view, kSpanKinds> kNames = {
      "forward", "backward", "loss", "optimizer", "add", "send", "recv", "collective"};
  return kNames.at(static_cast<size_t>(kind));
}

double makespan(const Timeline& timeline) {
  double end = 0;
  for (const RankTimeline& rank : timeline.ranks)
    for (const Span& span : rank.spans) end = std::max(end, span.end);
  return end;
}

double compute_time(const Timeline& timeline, int rank) {
  double time = 0;
  double until = 0;  // the end of the latest pass
  for (const Span& span : timeline.of(rank).spans) {
    if (is_compute(span.kind)) {
      time += span.length();
      until = span.end;
    } else if (span.start < until) {
      time -= std::min(span.end, until) - span.start;
    }
  }
  return time;
}

double idle_share(const Timeline& timeline, int rank) {
  const double whole = makespan(timeline);
  return whole > 0 ? 1 - compute_time(timeline, rank) / whole : 0;
}

double idle_share(const Timeline& timeline) {
  double whole = 0;
  double computing = 0;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    if (timeline.of(rank).is_network) continue;
    whole += makespan(timeline);
    computing += compute_time(timeline, rank);
  }
  return whole > 0 ? 1 - computing / whole : 0;
}

int peak_in_flight(const Timeline& timeline, int rank) {
  int now = 0;
  int peak = 0;
  for (const Span& span : timeline.of(rank).spans) {
    if (span.kind == SpanKind::kForward) peak = std::max(peak, ++now);
    if (span.kind == SpanKind::kBackward) --now;
  }
  return peak;
}

}  // namespace lab
