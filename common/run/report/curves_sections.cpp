// The loss curves, and the speed of the run.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/run/report/line_chart.h"
#include "common/run/report/report_sections.h"

namespace lab {
namespace {

constexpr size_t kMaxPoints = 700;  // of a curve; more would not be visible
constexpr size_t kMaxDots = 300;

std::string each(const char* what, size_t group) {
  return group == 1 ? fmt::format("each {}", what) : fmt::format("mean of {} {}s", group, what);
}

template <typename Value>
Curve curve_of(const RunReport& report, Value value) {
  Curve curve;
  for (const StepRecord& record : report.metrics)
    curve.push_back({static_cast<double>(record.step), value(record)});
  return curve;
}

/// The faint curve of all values and their running mean.
std::vector<ChartLine> lines_of(const Curve& curve) {
  const Curve raw = thinned(curve, kMaxPoints);
  return {{ChartLine::Style::kFaint, each("step", group_of(curve, kMaxPoints)), raw},
          {ChartLine::Style::kStrong, "running mean", running_mean(raw)}};
}

ChartLine validation_line(const RunReport& report) {
  Curve curve;
  for (const StepRecord& record : report.metrics)
    if (record.val_loss) curve.push_back({static_cast<double>(record.step), *record.val_loss});
  ChartLine line{.style = ChartLine::Style::kDots, .name = "validation"};
  line.points = thinned(curve, kMaxDots);
  if (line.points.size() < curve.size()) line.name = each("validation", group_of(curve, kMaxDots));
  for (const CurvePoint& point : line.points)
    line.tips.push_back(fmt::format("step {:.0f}: {:.4f}", point.x, point.y));
  return line;
}

struct TimeAxis {
  double seconds_per_unit;
  const char* name;
};

TimeAxis time_axis(double seconds) {
  if (seconds < 180) return {1, "seconds of training"};
  if (seconds < 3 * 3600) return {60, "minutes of training"};
  return {3600, "hours of training"};
}

std::string speed_chart(const RunReport& report) {
  const TimeAxis axis = time_axis(report.metrics.back().seconds);
  Curve curve;
  for (const StepRecord& record : report.metrics)
    curve.push_back({record.seconds / axis.seconds_per_unit, record.tokens_per_second});
  return line_chart_html(
      {.title = "Throughput", .x_name = axis.name, .y_name = "tokens/s", .lines = lines_of(curve)});
}

std::string rate_chart(const RunReport& report) {
  const Curve curve =
      thinned(curve_of(report, [](const StepRecord& r) { return r.learning_rate; }), kMaxPoints);
  return line_chart_html({.title = "Learning rate",
                          .x_name = "step",
                          .y_name = "",
                          .lines = {{ChartLine::Style::kStrong, "", curve}}});
}

}  // namespace

std::string learning_section(const RunReport& report) {
  if (report.metrics.empty())
    return "<section><h2>Learning</h2><p class=\"about\">No step has been recorded "
           "yet.</p></section>\n";
  std::vector<ChartLine> lines =
      lines_of(curve_of(report, [](const StepRecord& r) { return r.loss; }));
  ChartLine validation = validation_line(report);
  const bool validated = !validation.points.empty();
  if (validated) lines.push_back(std::move(validation));
  return fmt::format(
      "<section><h2>Learning</h2>\n<p class=\"about\">The loss is the mean cross-entropy of the "
      "next token, {}</p>\n{}</section>\n",
      validated ? "in nats. Training: of each step's batch, before its update. Validation: of text "
                  "that is never trained on."
                : "in nats, of each step's batch before its update. No validation loss has been "
                  "measured yet.",
      line_chart_html({.title = "Loss",
                       .x_name = "step",
                       .y_name = "nats per token",
                       .lines = std::move(lines),
                       .tall = true}));
}

std::string speed_section(const RunReport& report) {
  if (report.metrics.empty()) return "";
  return "<section><h2>Speed</h2>\n<div class=\"pair\">" + speed_chart(report) +
         rate_chart(report) + "</div></section>\n";
}

}  // namespace lab
