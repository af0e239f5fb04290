// A chart of curves for a page: it takes the available width, and its text keeps its size.
#pragma once

#include <string>
#include <vector>

#include "common/run/metrics/curve.h"

namespace lab {

struct ChartLine {
  enum class Style { kFaint, kStrong, kDots };
  Style style = Style::kStrong;
  std::string name = {};  // in the legend; empty: none
  Curve points = {};
  std::vector<std::string> tips = {};  // for kDots: the tooltip of each point
};

struct LineChart {
  std::string title = {};
  std::string x_name = {};  // "step"
  std::string y_name = {};  // "nats per token"
  std::vector<ChartLine> lines = {};
  bool tall = false;
};

/// A <figure>. Both axes begin at 0.
std::string line_chart_html(const LineChart& chart);

}  // namespace lab
