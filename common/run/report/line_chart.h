// A chart of curves for a page: it takes the width that there is, its letters keep their size.
#pragma once

#include <string>
#include <vector>

#include "common/run/training/curve.h"

namespace lab {

struct ChartLine {
  enum class Style { kFaint, kStrong, kDots };
  Style style = Style::kStrong;
  std::string name = {};  // in the legend; empty: not there
  Curve points = {};
  std::vector<std::string> tips = {};  // of kDots: what a point says under the pointer
};

struct LineChart {
  std::string title = {};
  std::string x_name = {};  // "step"
  std::string y_name = {};  // "nats per token"
  std::vector<ChartLine> lines = {};
  bool tall = false;
  double least_x = 0;  // where the axis begins
};

/// A <figure>. The y axis begins at 0.
std::string line_chart_html(const LineChart& chart);

}  // namespace lab
