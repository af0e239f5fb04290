#include "common/run/metrics/loss_plot.h"

#include <algorithm>
#include <utility>

#include "common/error.h"
#include "common/io/markup.h"
#include "common/pipeline/drawing/drawing.h"
#include "common/run/metrics/curve.h"

namespace lab {
namespace {

// Pixels: the whole picture, and the plot's area in it.
constexpr double kWidth = 860;
constexpr double kHeight = 480;
constexpr double kLeft = 70;
constexpr double kRight = kWidth - 34;
constexpr double kTop = 64;
constexpr double kBottom = kHeight - 58;

constexpr size_t kMaxPoints = 1500;  // of a curve; more cannot be seen

constexpr const char* kStyle =
    "text{font-family:'Helvetica Neue',Arial,sans-serif;font-size:13px;fill:#444}"
    ".title{font-size:17px;font-weight:600;fill:#222}"
    ".grid{stroke:#e6e6e6}.axis{stroke:#999}"
    ".raw{fill:none;stroke:#a9c4e6;stroke-width:1}"
    ".smooth{fill:none;stroke:#1f5fa8;stroke-width:2.2;stroke-linejoin:round}"
    ".val{fill:none;stroke:#d9622b;stroke-width:1.6;stroke-dasharray:5 4}"
    ".dot{fill:#d9622b;stroke:#fff;stroke-width:1.2}";

// Maps steps and losses to pixels. Both axes begin at 0, which for a loss is the best possible.
struct Scale {
  double last_step = 10.0;
  double highest_loss = 0.1;

  double x(double step) const { return kLeft + step / last_step * (kRight - kLeft); }
  double y(double loss) const { return kBottom - loss / highest_loss * (kBottom - kTop); }
};

std::string polyline(const Curve& points, const Scale& scale, const char* style) {
  std::string text = fmt::format("<polyline class=\"{}\" points=\"", style);
  for (const CurvePoint& point : points)
    text += fmt::format("{:.1f},{:.1f} ", scale.x(point.x), scale.y(point.y));
  return text + "\"/>\n";
}

std::string label(double x, double y, const char* anchor, const std::string& text,
                  const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, html_escaped(text));
}

std::string axes(const Scale& scale) {
  std::string text;
  for (const double tick : round_ticks(scale.highest_loss, 9)) {
    const double y = scale.y(tick);
    text += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/>\n", kLeft, y, kRight);
    text += label(kLeft - 10, y + 4.5, "end", fmt::format("{:g}", tick));
  }
  for (const double tick : round_ticks(scale.last_step, 8)) {
    const double x = scale.x(tick);
    text += fmt::format("<path class=\"axis\" d=\"M{:.1f} {}v5\"/>\n", x, kBottom);
    text += label(x, kBottom + 20, "middle", fmt::format("{:.0f}", tick));
  }
  text += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>\n", kLeft, kBottom, kRight);
  text += label((kLeft + kRight) / 2, kHeight - 16, "middle", "step");
  const double middle = (kTop + kBottom) / 2;
  return text + label(22, middle, "middle", "loss (nats per token)",
                      fmt::format(" transform=\"rotate(-90 22 {})\"", middle).c_str());
}

std::string legend(bool validation) {
  constexpr double kLine = 28;
  std::string text;
  double x = kRight - (validation ? 362 : 246);
  const double y = kTop - 16;
  const auto entry = [&](const char* style, const char* name, double width) {
    text += fmt::format("<path class=\"{}\" d=\"M{} {}h{}\"/>\n", style, x, y, kLine);
    text += label(x + kLine + 6, y + 4.5, "start", name);
    x += width;
  };
  entry("raw", "each step", 116);
  entry("smooth", "running mean", 142);
  if (validation) {
    text += fmt::format("<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"4\"/>\n", x + kLine / 2, y);
    entry("val", "validation", 100);
  }
  return text;
}

}  // namespace

std::vector<double> round_ticks(double high, int count) {
  const double distance = tick_distance(high, count);
  std::vector<double> ticks;
  for (int k = 0; k <= count && k * distance <= high * (1 + 1e-6); ++k)
    ticks.push_back(k * distance);
  return ticks;
}

std::string loss_plot_svg(std::span<const StepRecord> records, const std::string& title) {
  Curve training;
  Curve validation;
  for (const StepRecord& record : records) {
    const auto step = static_cast<double>(record.step);
    training.push_back({step, record.loss});
    if (record.val_loss) validation.push_back({step, *record.val_loss});
  }
  const Curve raw = thinned(training, kMaxPoints);

  Scale scale;
  if (!training.empty()) scale.last_step = std::max(scale.last_step, training.back().x);
  for (const Curve* curve : {&raw, &std::as_const(validation)})
    for (const CurvePoint& point : *curve)
      scale.highest_loss = std::max(scale.highest_loss, point.y);
  scale.highest_loss *= 1.04;

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      kWidth, kHeight, html_escaped(title), kStyle);
  svg += label(kLeft, 30, "start", title, " class=\"title\"");
  svg += axes(scale) + legend(!validation.empty());
  svg += polyline(raw, scale, "raw") + polyline(running_mean(raw), scale, "smooth");
  svg += polyline(validation, scale, "val");
  for (const CurvePoint& point : validation)
    svg += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n",
                       scale.x(point.x), scale.y(point.y));
  return svg + "</svg>\n";
}

}  // namespace lab
