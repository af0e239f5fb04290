#include "common/pipeline/drawing/drawing.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/error.h"

namespace lab {
namespace {

// "F3": the pass that has made the message or reads it. Activations come from the previous rank,
// gradients from the next one.
std::string pass_of(const Span& message, int rank) {
  const bool is_sent = message.kind == SpanKind::kSend;
  const std::string number = message.microbatch < 0 ? "" : std::to_string(message.microbatch);
  if (message.peer < 0) return number;
  return fmt::format("{}{}", (message.peer > rank) == is_sent ? 'F' : 'B', number);
}

std::string join(const char* verb, const std::string& object) {
  return object.empty() ? verb : fmt::format("{} {}", verb, object);
}

// How times of about this size are written: `factor` times the time, then `name`.
struct TimeScale {
  double factor = 1;
  std::string name;  // "ms"; may be empty
};

TimeScale time_scale(double time, const std::string& unit) {
  if (unit != "s" || time >= 1) return {1, unit};
  return time >= 1e-3 ? TimeScale{1e3, "ms"} : TimeScale{1e6, "us"};
}

}  // namespace

std::string rank_name(const Timeline& timeline, int rank) {
  std::string name = timeline.ranks.at(static_cast<size_t>(rank)).name;
  for (char& c : name)
    if (c < ' ' || c > '~') c = '?';
  return name.empty() ? fmt::format("rank {}", rank) : name;
}

char span_letter(SpanKind kind) {
  constexpr std::array<char, kSpanKinds> kLetters = {'F', 'B', 'L', 'O', '+', '>', '<', '='};
  return kLetters.at(static_cast<size_t>(kind));
}

const char* span_meaning(SpanKind kind) {
  constexpr std::array<const char*, kSpanKinds> kMeanings = {
      "forward",       "backward",         "loss",      "optimizer", "adds",
      "waits to send", "waits to receive", "collective"};
  return kMeanings.at(static_cast<size_t>(kind));
}

std::vector<SpanKind> kinds_that_occur(const Timeline& timeline) {
  std::array<bool, kSpanKinds> occurs = {};
  for (const RankTimeline& rank : timeline.ranks)
    for (const Span& span : rank.spans) occurs.at(static_cast<size_t>(span.kind)) = true;
  std::vector<SpanKind> kinds;
  for (size_t kind = 0; kind < occurs.size(); ++kind)
    if (occurs[kind]) kinds.push_back(static_cast<SpanKind>(kind));
  return kinds;
}

std::string describe_span(const Span& span, int rank) {
  const std::string number = span.microbatch < 0 ? "" : std::to_string(span.microbatch);
  switch (span.kind) {
    case SpanKind::kForward:
    case SpanKind::kBackward:
      return fmt::format("{}{}", span_letter(span.kind), number);
    case SpanKind::kSend:
      return join("wait to send", pass_of(span, rank));
    case SpanKind::kRecv:
      return join("wait for", pass_of(span, rank));
    case SpanKind::kLoss:
    case SpanKind::kOptimizer:
    case SpanKind::kAdd:
    case SpanKind::kCollective:
      break;
  }
  return join(span_meaning(span.kind), number);
}

std::string describe_message(const Span& message, int rank) {
  return join(span_name(message.kind).data(), pass_of(message, rank));
}

std::string format_time(double time, const std::string& unit) {
  const TimeScale scale = time_scale(time, unit);
  const double value = time * scale.factor;
  std::string number;
  if (value == std::round(value))
    number = fmt::format("{:.0f}", value);
  else if (value < 1)
    number = fmt::format("{:.3g}", value);
  else  // three digits, or more before the point
    number = fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
  return scale.name.empty() ? number : fmt::format("{} {}", number, scale.name);
}

double tick_distance(double range, double parts) {
  const double least = range / parts;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

std::vector<Tick> ticks_of(double time, const std::string& unit, double parts, double least) {
  if (time <= 0) return {};
  const TimeScale scale = time_scale(time, unit);
  const double range = time * scale.factor;
  const double distance = std::max(least, tick_distance(range, std::max(1.0, parts)));
  std::vector<Tick> ticks;
  for (int i = 0; i * distance <= range * (1 + 1e-9); ++i)
    ticks.push_back({i * distance / scale.factor, fmt::format("{:g}", i * distance)});
  if (!scale.name.empty()) ticks.front().label += " " + scale.name;
  return ticks;
}

}  // namespace lab
