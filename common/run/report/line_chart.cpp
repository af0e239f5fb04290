#include "common/run/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/format.h"
#include "common/io/markup.h"
#include "common/run/metrics/loss_plot.h"

namespace lab {
namespace {

// Curves are drawn in a square of this size, which the page stretches to fit.
constexpr double kSize = 1000;
constexpr size_t kManyDots = 60;  // more than these are drawn small

struct Axes {
  double x_high = 0;
  double y_high = 0;

  double x(double value) const { return value / x_high; }
  double y(double value) const { return 1 - value / y_high; }
};

Axes axes_of(const LineChart& chart) {
  Axes axes;
  for (const ChartLine& line : chart.lines)
    for (const CurvePoint& point : line.points) {
      axes.x_high = std::max(axes.x_high, point.x);
      axes.y_high = std::max(axes.y_high, point.y * 1.05);
    }
  if (axes.x_high <= 0) axes.x_high = 1;
  if (axes.y_high <= 0) axes.y_high = 1;
  return axes;
}

std::string tick_text(double value) {
  return value >= 1000 ? format_count(std::llround(std::min(value, 1e15)))
                       : fmt::format("{:g}", value);
}

// How the texts of the x axis are aligned: those at the ends must not extend beyond the chart.
const char* anchor(double place) {
  return place < 0.03 ? "start" : place > 0.97 ? "end" : "middle";
}

std::string grid(const Axes& axes, bool tall) {
  std::string svg;
  for (const double tick : round_ticks(axes.y_high, tall ? 8 : 5)) {
    const double y = 100 * axes.y(tick);
    svg += fmt::format("<line class=\"{}\" x1=\"0\" x2=\"100%\" y1=\"{:.2f}%\" y2=\"{:.2f}%\"/>",
                       tick == 0 ? "axis" : "rule", y, y);
    svg += fmt::format("<text x=\"0\" dx=\"-8\" y=\"{:.2f}%\" dy=\"4\" class=\"end\">{}</text>\n",
                       y, tick_text(tick));
  }
  for (const double tick : round_ticks(axes.x_high, 5)) {
    const double x = axes.x(tick);
    svg += fmt::format("<text x=\"{:.2f}%\" y=\"100%\" dy=\"18\" class=\"{}\">{}</text>\n", 100 * x,
                       anchor(x), tick_text(tick));
  }
  return svg;
}

const char* line_class(ChartLine::Style style) {
  static constexpr std::array kClasses = {"faint-line", "strong-line", "dotted-line"};
  return kClasses.at(static_cast<size_t>(style));
}

std::string curve(const ChartLine& line, const Axes& axes) {
  std::string svg = fmt::format("<polyline class=\"{}\" points=\"", line_class(line.style));
  for (const CurvePoint& point : line.points)
    svg += fmt::format("{:.1f},{:.1f} ", kSize * axes.x(point.x), kSize * axes.y(point.y));
  svg += "\"/>\n";
  if (line.style != ChartLine::Style::kDots) return svg;
  for (size_t i = 0; i < line.points.size(); ++i) {
    // A line of length 0: its round ends stay round however the square is stretched.
    svg += fmt::format("<path class=\"dot{}\" d=\"M{:.1f} {:.1f}h0\">",
                       line.points.size() > kManyDots ? " small" : "",
                       kSize * axes.x(line.points[i].x), kSize * axes.y(line.points[i].y));
    if (i < line.tips.size()) svg += "<title>" + html_escaped(line.tips[i]) + "</title>";
    svg += "</path>\n";
  }
  return svg;
}

std::string legend(const LineChart& chart) {
  std::string html;
  for (const ChartLine& line : chart.lines)
    if (!line.name.empty())
      html += fmt::format("<span class=\"key\"><i class=\"line {}\"></i>{}</span>\n",
                          line_class(line.style), html_escaped(line.name));
  return html;
}

}  // namespace

std::string line_chart_html(const LineChart& chart) {
  const Axes axes = axes_of(chart);
  std::string html = fmt::format(
      "<figure class=\"chart\"><figcaption><b>{}</b><span class=\"unit\">{}</span>"
      "<span class=\"keys\">{}</span></figcaption>\n"
      "<div class=\"plot{}\"><svg role=\"img\" aria-label=\"{}\">\n{}",
      html_escaped(chart.title), html_escaped(chart.y_name), legend(chart),
      chart.tall ? " tall" : "", html_escaped(chart.title), grid(axes, chart.tall));
  html += fmt::format(
      "<svg width=\"100%\" height=\"100%\" viewBox=\"0 0 {0} {0}\" preserveAspectRatio=\"none\">\n",
      kSize);
  for (const ChartLine& line : chart.lines) html += curve(line, axes);
  return html + fmt::format("</svg></svg></div>\n<div class=\"x-name\">{}</div></figure>\n",
                            html_escaped(chart.x_name));
}

}  // namespace lab
