// Where things stand in the grid of a timeline: columns of characters, and what fills each.
#pragma once

#include <cstddef>
#include <vector>

#include "common/pipeline/timeline.h"

namespace lab {

struct GridLayout {
  double time = 0;        // of all columns
  size_t columns = 0;     // in which time is drawn
  size_t cell = 0;        // columns of a unit of simulated time; 0: times are fitted to the columns
  size_t name_width = 0;  // columns before them
  bool figures = false;   // there is room for kFiguresWidth columns behind them
};

constexpr size_t kLongestName = 16;   // longer ones are cut
constexpr size_t kFiguresWidth = 11;  // "  25 %    3"

/// The best layout of at most `width` columns. Cells of units are so wide that `label_size`
/// characters fit, if they can be.
GridLayout grid_layout(const Timeline& timeline, size_t width, size_t label_size);

/// For each column the span that fills most of it; null if nothing does.
std::vector<const Span*> columns_of(const RankTimeline& rank, const GridLayout& layout);

}  // namespace lab
