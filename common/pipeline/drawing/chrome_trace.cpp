// Timelines in the Trace Event format of Perfetto and chrome://tracing.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/drawing/drawing.h"

namespace lab {
namespace {

using nlohmann::json;

// All tracks belong to one process, so that viewers show them right away. Its number must not be
// that of a track, which viewers would call its main thread.
constexpr int kProcess = 1'000'000;

// The tracks that are shown, one below the other.
class Trace {
 public:
  explicit Trace(const Timeline& timeline) : microseconds_(timeline.unit == "s" ? 1e6 : 1e3) {}

  void name_process(const std::string& name) { add_metadata("process_name", {{"name", name}}); }

  int add_track(const std::string& name) {
    const int track = ++tracks_;  // viewers take number 0 for the main thread
    add_metadata("thread_name", {{"name", name}}, track);
    add_metadata("thread_sort_index", {{"sort_index", track}}, track);
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
  void add_metadata(const char* what, json arguments, int track = 0) {
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

// Spans of one track must not overlap, but messages may: this adds as many tracks as they need.
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
      const std::string name = fmt::format("messages of {}", rank_name(timeline, rank));
      tracks.push_back({trace.add_track(name), 0});
      free = tracks.end() - 1;
    }
    free->free_from = message->end;
    trace.add_span(free->number, *message, describe_message(*message, rank));
  }
}

}  // namespace

std::string chrome_trace(const Timeline& timeline) {
  Trace trace(timeline);
  if (timeline.rank_count() > 0) trace.name_process("ranks");
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    const int track = trace.add_track(rank_name(timeline, rank));
    for (const Span& span : timeline.ranks[static_cast<size_t>(rank)].spans)
      trace.add_span(track, span, describe_span(span, rank));
  }
  for (int rank = 0; rank < timeline.rank_count(); ++rank) add_messages(trace, timeline, rank);
  return trace.text();
}

}  // namespace lab
