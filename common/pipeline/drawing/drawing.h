// What all drawings of timelines have in common: names, labels, times, ticks.
#pragma once

#include <string>
#include <vector>

#include "common/pipeline/timeline.h"

namespace lab {

/// "stage 1", or "rank 1" if it has no name; printable ASCII, whatever the name holds.
std::string rank_name(const Timeline& timeline, int rank);

/// 'F', 'B', 'L', 'O' for what computes; '>', '<', '=' for what waits.
char span_letter(SpanKind kind);

/// What a span shows, for a legend: "forward", "waits to receive", ...
const char* span_meaning(SpanKind kind);

/// The kinds that occur, in the order of SpanKind.
std::vector<SpanKind> kinds_that_occur(const Timeline& timeline);

/// What a span is about: "F3", "wait for F3", "send B2", "collective", "optimizer". `rank`: whose.
std::string describe_span(const Span& span, int rank);
/// The same of a message: "recv F3", "send B2".
std::string describe_message(const Span& message, int rank);

/// "12.3 ms", "24".
std::string format_time(double time, const std::string& unit);

/// 1, 2 or 5 times a power of ten: the smallest such distance that divides `range` into at most
/// `parts` parts. `range` > 0, `parts` >= 1.
double tick_distance(double range, double parts);

/// Where the axis below a timeline has a number, and which: "0 ms", "10", "20", ...
struct Tick {
  double time;
  std::string label;
};
/// From 0 to `time`, which they divide into at most `parts` parts; none if `time` is 0. `least`:
/// the least distance, in the unit of the labels.
std::vector<Tick> ticks_of(double time, const std::string& unit, double parts, double least = 0);

}  // namespace lab
