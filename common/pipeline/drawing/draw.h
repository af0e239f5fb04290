// Drawings of timelines: a grid in the terminal, an SVG figure, a trace for Perfetto.
#pragma once

#include <string>

#include "common/pipeline/timeline.h"

namespace lab {

struct GridStyle {
  bool color = false;
  /// Columns into which everything must fit, names included; less than 40 counts as 40. Simulated
  /// times that fit are drawn with one cell per unit, as in the papers. Others are scaled, and each
  /// column shows what fills most of it.
  int width = 80;
};

/// A line per rank: forwards and backwards by microbatch, updates, waiting, idle; below them a
/// scale and a legend of what occurs. Without colour it is plain ASCII, and letters tell forwards
/// from backwards.
std::string draw_grid(const Timeline& timeline, const GridStyle& style = {});

/// A self-contained SVG figure, wide enough to read the number of every microbatch, for light and
/// dark pages. `title` may be empty.
std::string draw_svg(const Timeline& timeline, const std::string& title = "");

/// JSON in the Trace Event format, which ui.perfetto.dev and chrome://tracing open: a track per
/// rank, messages below, times in microseconds (a unit of simulated time counts as 1 ms).
std::string chrome_trace(const Timeline& timeline);

}  // namespace lab
