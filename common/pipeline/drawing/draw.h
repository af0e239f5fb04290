// Timelines for the eye: a grid in the terminal, an SVG figure, a trace for Perfetto.
#pragma once

#include <string>

#include "common/pipeline/timeline.h"

namespace lab {

struct GridStyle {
  bool color = false;
  /// Columns in which the whole time is to fit, names included; less than 40 counts as 40.
  /// Simulated times that fit are drawn with one cell per unit, as in the papers. Others are
  /// scaled, and a column shows what fills most of it.
  int width = 80;
};

/// A line per rank: forward, backward and optimizer by microbatch, waiting, idle; below it a scale
/// and a legend of what occurs. Without colour, forwards and backwards differ by their letters.
/// Plain ASCII unless in colour.
std::string draw_grid(const Timeline& timeline, const GridStyle& style = {});

/// A self-contained SVG figure, wide enough to read the number of every microbatch. It fits light
/// and dark pages. `title` may be empty.
std::string draw_svg(const Timeline& timeline, const std::string& title = "");

/// JSON in the Trace Event format, which ui.perfetto.dev and chrome://tracing open: a track per
/// rank, messages below, times in microseconds (a unit of simulated time counts as 1 ms).
std::string chrome_trace(const Timeline& timeline);

}  // namespace lab
