#include "common/pipeline/drawing/grid_layout.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/pipeline/drawing/drawing.h"

namespace lab {
namespace {

constexpr size_t kFewestColumns = 8;

// Every span begins and ends at a whole unit of simulated time.
bool in_whole_units(const Timeline& timeline) {
  const auto whole = [](double time) { return std::abs(time - std::round(time)) < 1e-9; };
  return timeline.unit.empty() && std::ranges::all_of(timeline.ranks, [&](const auto& rank) {
           return std::ranges::all_of(
               rank.spans, [&](const Span& span) { return whole(span.start) && whole(span.end); });
         });
}

// How much of a column is filled by what.
struct Filling {
  std::array<double, kSpanKinds> shares = {};  // by kind
  std::array<const Span*, kSpanKinds> spans = {};
  std::array<double, kSpanKinds> longest = {};  // the share of each of `spans`

  void add(const Span& span, double share) {
    const auto kind = static_cast<size_t>(span.kind);
    shares[kind] += share;
    if (share <= longest[kind]) return;
    longest[kind] = share;
    spans[kind] = &span;
  }

  const Span* most() const {
    double idle = 1;
    for (const double share : shares) idle -= share;
    const auto best = std::ranges::max_element(shares);
    return *best > idle ? spans[static_cast<size_t>(best - shares.begin())] : nullptr;
  }
};

}  // namespace

GridLayout grid_layout(const Timeline& timeline, size_t width, size_t label_size) {
  GridLayout layout;
  layout.time = makespan(timeline);
  for (int rank = 0; rank < timeline.rank_count(); ++rank)
    layout.name_width = std::max(layout.name_width, rank_name(timeline, rank).size());
  layout.name_width = std::min({layout.name_width, kLongestName, width / 3}) + 2;  // and " |"

  const size_t room = std::max(width, layout.name_width + kFewestColumns) - layout.name_width;
  const size_t beside = room - std::min(room, kFiguresWidth);  // with figures
  const bool units = in_whole_units(timeline) && layout.time <= static_cast<double>(room);
  if (!units || layout.time < 1) {
    layout.figures = beside >= 2 * kFewestColumns;
    layout.columns = layout.figures ? beside : room;
    return layout;
  }
  const auto time = static_cast<size_t>(std::lround(layout.time));
  const size_t widest = label_size + 1;  // wider would be no clearer
  const size_t cell = std::min(room / time, widest);
  const size_t beside_cell = std::min(beside / time, widest);
  // The figures may take columns from a cell, but never those of its label.
  layout.figures = beside_cell >= (cell >= label_size ? label_size : 1);
  layout.cell = layout.figures ? beside_cell : cell;
  layout.columns = time * layout.cell;
  return layout;
}

std::vector<const Span*> columns_of(const RankTimeline& rank, const GridLayout& layout) {
  std::vector<Filling> fillings(layout.columns);
  const auto count = static_cast<double>(layout.columns);
  for (const Span& span : rank.spans) {
    const double start = std::clamp(span.start * count / layout.time, 0.0, count);
    const double end = std::clamp(span.end * count / layout.time, 0.0, count);
    for (auto column = static_cast<size_t>(start); static_cast<double>(column) < end; ++column) {
      const auto left = static_cast<double>(column);
      fillings[column].add(span, std::min(end, left + 1) - std::max(start, left));
    }
  }
  std::vector<const Span*> columns;
  for (const Filling& filling : fillings) columns.push_back(filling.most());
  return columns;
}

}  // namespace lab
