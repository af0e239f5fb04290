// Timelines in the Trace Event format of Perfetto and chrome://tracing.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/pipeline/draw.h"
#include "common/pipeline/drawing.h"
#include "common/tensor/error.h"

namespace lab {
namespace {

using nlohmann::json;

constexpr int kProcess = 0;
constexpr int kTracksPerRank = 10000;  // only orders the tracks

// The tracks that are shown, one below the other.
class Trace {
 public:
  explicit Trace(const Timeline& timeline) : microseconds_(timeline.unit == "s" ? 1e6 : 1e3) {}

  int add_track(const std::string& name, int order) {
    const int track = tracks_++;
    add_name(track, "thread_name", {{"name", name}});
    add_name(track, "thread_sort_index", {{"sort_index", order}});
    return track;
  }

  void add_span(int track, const Span& span, const std::string& name) {
    json arguments = json::object();
    if (span.microbatch >= 0) arguments["microbatch"] = span.microbatch;
    if (span.peer >= 0) arguments["peer"] = span.peer;
    if (span.bytes > 0) arguments["bytes"] = span.bytes;
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", span_name(span.kind)},
                       {"pid", kProcess},
                       {"tid", track},
                       {"ts", span.start * microseconds_},
                       {"dur", span.length() * microseconds_},
                       {"args", std::move(arguments)}});
  }

  std::string text() {
    return json({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}).dump() + "\n";
  }

 private:
  void add_name(int track, const char* what, json arguments) {
    events_.push_back({{"ph", "M"},
                       {"name", what},
                       {"pid", kProcess},
                       {"tid", track},
                       {"args", std::move(arguments)}});
  }

  double microseconds_;
  int tracks_ = 0;
  json events_ = json::array();
};

// Spans of one track must not overlap, which messages may: as many tracks as are needed.
void add_messages(Trace& trace, const Timeline& timeline, int rank) {
  struct Track {
    int number;
    double free_from;
  };
  std::vector<Track> tracks;
  std::vector<const Span*> messages;
  for (const Span& message : timeline.ranks[static_cast<size_t>(rank)].messages)
    messages.push_back(&message);
  std::ranges::stable_sort(messages, {}, &Span::start);
  for (const Span* message : messages) {
    auto free = std::ranges::find_if(
        tracks, [&](const Track& track) { return track.free_from <= message->start; });
    if (free == tracks.end()) {
      const int order = rank * kTracksPerRank + 1 + static_cast<int>(tracks.size());
      const std::string name = fmt::format("messages of {}", rank_name(timeline, rank));
      tracks.push_back({trace.add_track(name, order), 0});
      free = tracks.end() - 1;
    }
    free->free_from = message->end;
    trace.add_span(free->number, *message, describe_message(*message, rank));
  }
}

}  // namespace

std::string chrome_trace(const Timeline& timeline) {
  Trace trace(timeline);
  std::vector<int> tracks;  // of rank r: r
  for (int rank = 0; rank < timeline.rank_count(); ++rank)
    tracks.push_back(trace.add_track(rank_name(timeline, rank), rank * kTracksPerRank));
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    for (const Span& span : timeline.ranks[static_cast<size_t>(rank)].spans)
      trace.add_span(tracks[static_cast<size_t>(rank)], span, describe_span(span, rank));
    add_messages(trace, timeline, rank);
  }
  return trace.text();
}

}  // namespace lab
