// Timelines as a grid of characters.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "common/error.h"
#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/drawing/drawing.h"
#include "common/pipeline/drawing/grid_layout.h"

namespace lab {
namespace {

constexpr int kNarrowestGrid = 40;  // columns
constexpr const char* kReset = "\x1b[0m";

// Background and letters, of the 256 colours of terminals. Neighbours of one kind alternate.
struct Paint {
  int background;
  int odd_background;
  int letters;
};

Paint paint_of(SpanKind kind) {
  constexpr std::array<Paint, kSpanKinds> kPaints = {{{26, 32, 231},
                                                      {22, 28, 231},
                                                      {178, 178, 16},
                                                      {127, 127, 231},
                                                      {30, 30, 231},
                                                      {245, 245, 16},
                                                      {240, 240, 231},
                                                      {166, 173, 231}}};
  return kPaints.at(static_cast<size_t>(kind));
}

std::string painted(const std::string& text, SpanKind kind, int microbatch) {
  const Paint paint = paint_of(kind);
  return fmt::format("\x1b[48;5;{};38;5;{}m{}{}",
                     microbatch % 2 == 1 ? paint.odd_background : paint.background, paint.letters,
                     text, kReset);
}

// The text of a run of `length` columns. In colour, the background shows the kind.
std::string label_of(const Span& span, size_t length, bool color) {
  std::string label = span.microbatch < 0 ? "" : std::to_string(span.microbatch);
  const bool pass = span.kind <= SpanKind::kLoss;
  if (!pass) label.clear();
  if (!color && pass) label.insert(label.begin(), span_letter(span.kind));
  const char fill = color ? ' ' : pass ? '-' : span_letter(span.kind);
  if (label.size() <= length) return label + std::string(length - label.size(), fill);
  return std::string(length, color ? ' ' : span_letter(span.kind));
}

using Columns = std::vector<const Span*>;  // of a row; null: idle

std::string row_text(const Columns& columns, bool color) {
  std::string text;
  for (size_t first = 0; first < columns.size();) {
    size_t last = first;
    while (last < columns.size() && columns[last] == columns[first]) ++last;
    const Span* span = columns[first];
    if (span == nullptr)
      text += std::string(last - first, color ? ' ' : '.');
    else if (color)
      text += painted(label_of(*span, last - first, true), span->kind, span->microbatch);
    else
      text += label_of(*span, last - first, false);
    first = last;
  }
  return text;
}

// "         0         10        20", in the columns of the grid.
std::string scale_text(const GridLayout& layout, const std::string& unit, size_t width) {
  constexpr double kColumnsPerTick = 10;
  const auto columns = static_cast<double>(layout.columns);
  std::string text(layout.name_width, ' ');
  for (const auto& [time, label] :
       ticks_of(layout.time, unit, columns / kColumnsPerTick, layout.cell > 0 ? 1 : 0)) {
    const auto column = static_cast<size_t>(std::lround(time / layout.time * columns));
    const size_t place = layout.name_width + column;
    if (place < text.size() || place + label.size() > width) continue;
    text += std::string(place - text.size(), ' ') + label;
  }
  return text;
}

// Of what the rows show, whose text is `cells`: short spans may not be there.
std::vector<std::string> legend(const Timeline& timeline, const std::vector<Columns>& rows,
                                const std::vector<std::string>& cells, bool color) {
  std::vector<std::string> entries;
  for (const SpanKind kind : kinds_that_occur(timeline)) {
    const auto shows = [kind](const Span* span) { return span != nullptr && span->kind == kind; };
    const auto shown = [&](const Columns& row) { return std::ranges::any_of(row, shows); };
    if (!std::ranges::any_of(rows, shown)) continue;
    const std::string letter(1, span_letter(kind));
    entries.push_back(
        fmt::format("{} {}", color ? painted("  ", kind, 0) : letter, span_meaning(kind)));
  }
  if (color) return entries;
  const auto occurs = [&](char c) {
    return std::ranges::any_of(
        cells, [c](const std::string& row) { return row.find(c) != std::string::npos; });
  };
  if (occurs('-')) entries.emplace_back("- goes on");
  if (occurs('.')) entries.emplace_back(". idle");
  return entries;
}

size_t visible_size(const std::string& text) {
  size_t size = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') escape = true;
    if (!escape) ++size;
    if (c == 'm') escape = false;
  }
  return size;
}

// In lines of at most `width` columns.
std::string wrapped(const std::vector<std::string>& entries, size_t width,
                    std::string_view between) {
  std::string text;
  std::string line;
  for (const std::string& entry : entries) {
    if (!line.empty() && visible_size(line) + between.size() + visible_size(entry) > width) {
      text += line + "\n";
      line.clear();
    }
    if (!line.empty()) line += between;
    line += entry;
  }
  return text + line + "\n";
}

bool has_microbatches(const Timeline& timeline) {
  const auto of_microbatch = [](const Span& span) {
    return span.kind == SpanKind::kForward && span.microbatch >= 0;
  };
  return std::ranges::any_of(timeline.ranks, [&](const RankTimeline& rank) {
    return std::ranges::any_of(rank.spans, of_microbatch);
  });
}

// Of all ranks, and of each rank if there is no room for its figures beside its row.
std::vector<std::string> summary(const Timeline& timeline, bool ranks) {
  std::vector<std::string> entries = {
      fmt::format("makespan {}", format_time(makespan(timeline), timeline.unit)),
      fmt::format("idle {:.1f} % of all ranks' time", 100 * idle_share(timeline))};
  if (!ranks) return entries;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    entries.push_back(fmt::format("{}: idle {:.0f} %",
                                  rank_name(timeline, rank).substr(0, kLongestName),
                                  100 * idle_share(timeline, rank)));
    if (has_microbatches(timeline))
      entries.back() += fmt::format(", peak {}", peak_in_flight(timeline, rank));
  }
  return entries;
}

std::string row(const Timeline& timeline, int rank, const std::string& cells,
                const GridLayout& layout) {
  const size_t name_size = layout.name_width - 2;
  std::string text =
      fmt::format("{:<{}} |{}", rank_name(timeline, rank).substr(0, name_size), name_size, cells);
  if (layout.figures) text += fmt::format("{:4.0f} %", 100 * idle_share(timeline, rank));
  if (layout.figures && has_microbatches(timeline))
    text += fmt::format("{:5}", peak_in_flight(timeline, rank));
  return text + "\n";
}

// The longest label of a pass: "F12", in colour "12".
size_t label_size(const Timeline& timeline, bool color) {
  int highest = 0;
  for (const RankTimeline& rank : timeline.ranks)
    for (const Span& span : rank.spans) highest = std::max(highest, span.microbatch);
  return std::to_string(highest).size() + (color ? 0 : 1);
}

}  // namespace

std::string draw_grid(const Timeline& timeline, const GridStyle& style) {
  const auto width = static_cast<size_t>(std::max(style.width, kNarrowestGrid));
  GridLayout layout = grid_layout(timeline, width, label_size(timeline, style.color));
  const bool microbatches = has_microbatches(timeline);
  // A network has no idle time.
  const bool networks = std::ranges::any_of(timeline.ranks, &RankTimeline::is_network);
  layout.figures = layout.figures && !networks;
  if (layout.time <= 0) return "nothing to draw: the timeline is empty\n";
  std::string text;
  if (layout.figures)
    text += std::string(layout.name_width + layout.columns, ' ') +
            (microbatches ? "  idle peak\n" : "  idle\n");
  std::vector<Columns> rows;
  std::vector<std::string> cells;
  for (const RankTimeline& rank : timeline.ranks) {
    rows.push_back(columns_of(rank, layout));
    cells.push_back(row_text(rows.back(), style.color));
  }
  for (int rank = 0; rank < timeline.rank_count(); ++rank)
    text += row(timeline, rank, cells[static_cast<size_t>(rank)], layout);
  text += scale_text(layout, timeline.unit, width) + "\n";
  text += wrapped(legend(timeline, rows, cells, style.color), width, "   ");
  text += wrapped(summary(timeline, !layout.figures && !networks), width, "; ");
  if (microbatches && !networks) text += "peak: most microbatches in flight\n";
  return text;
}

}  // namespace lab
