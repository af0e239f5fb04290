// What goes where in the grid of a timeline: columns of characters, and what fills each.
#pragma once

#include <cstddef>
#include <vector>

#include "common/pipeline/timeline.h"

namespace lab {

struct GridLayout {
  double time = 0;        // that all columns stand for
  size_t columns = 0;     // that time is drawn in
  size_t cell = 0;        // columns of a unit of simulated time; 0: times are fitted to the columns
  size_t name_width = 0;  // columns to the left of them
  bool figures = false;   // there is room for kFiguresWidth columns to the right
};

constexpr size_t kLongestName = 16;   // longer ones are cut
constexpr size_t kFiguresWidth = 11;  // "  25 %    3"

/// The best layout of at most `width` columns. If possible, the cells of units are wide enough for
/// `label_size` characters.
GridLayout grid_layout(const Timeline& timeline, size_t width, size_t label_size);

/// For each column the span that fills most of it; null if nothing does.
std::vector<const Span*> columns_of(const RankTimeline& rank, const GridLayout& layout);

}  // namespace lab
