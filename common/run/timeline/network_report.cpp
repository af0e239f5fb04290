#include "common/run/timeline/network_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/io/files.h"
#include "common/io/terminal.h"
#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/drawing/drawing.h"
#include "common/run/checkpoint/run_folder.h"

namespace lab {
namespace {

// Width of the grid: it fits into 80 columns with the launcher's prefix.
constexpr int kWidth = 75;

double time_in_collectives(const std::vector<Span>& spans) {
  double sum = 0;
  for (const Span& span : spans)
    if (span.kind == SpanKind::kCollective) sum += span.length();
  return sum;
}

}  // namespace

bool has_network(const Timeline& timeline) {
  return std::ranges::any_of(timeline.ranks, [](const RankTimeline& rank) {
    return std::ranges::count(rank.messages, SpanKind::kCollective, &Span::kind) > 0;
  });
}

Timeline with_network_rows(const Timeline& timeline) {
  if (!has_network(timeline)) return timeline;
  Timeline result{.unit = timeline.unit, .ranks = {}};
  for (int rank = 0; rank < timeline.rank_count(); ++rank) {
    RankTimeline own = timeline.ranks[static_cast<size_t>(rank)];
    own.name = rank_name(timeline, rank);
    RankTimeline network{.name = "  network", .spans = {}, .messages = {}, .is_network = true};
    for (const Span& message : own.messages)
      if (message.kind == SpanKind::kCollective) network.spans.push_back(message);
    result.ranks.push_back(std::move(own));
    result.ranks.push_back(std::move(network));
  }
  return result;
}

std::string describe_network(const Timeline& timeline) {
  double exposed = 0;
  double travelling = 0;
  for (const RankTimeline& rank : timeline.ranks) {
    exposed = std::max(exposed, time_in_collectives(rank.spans));
    travelling = std::max(travelling, time_in_collectives(rank.messages));
  }
  std::string text = fmt::format("exposed     {} on the rank that waited longest",
                                 format_time(exposed, timeline.unit));
  if (travelling > 0)  // only posted collectives are recorded
    text +=
        fmt::format("; posted messages travelled for {}", format_time(travelling, timeline.unit));
  return text + "\n";
}

void write_timeline(const Timeline& timeline, const std::filesystem::path& folder) {
  write_file(folder / "timeline.svg",
             draw_svg(with_network_rows(timeline), "One training step, as measured"));
  write_file(folder / "trace.json", chrome_trace(timeline));
}

void print_grid(const Timeline& timeline, const std::string& title) {
  fmt::print("\n{}\n{}", title,
             draw_grid(with_network_rows(timeline),
                       {.color = wants_color(STDOUT_FILENO), .width = kWidth}));
}

void print_files(const std::filesystem::path& folder) {
  fmt::print(
      "timeline    {0}/timeline.svg\ntrace       {0}/trace.json (ui.perfetto.dev opens it)\n",
      display_path(folder));
}

void print_network_timeline(const Timeline& timeline, const std::string& title) {
  print_grid(timeline, title);
  fmt::print("{}", describe_network(timeline));
}

void show_network_timeline(Job& job, const TimeWindow& window,
                           const std::filesystem::path& folder) {
  const auto timeline = gather_timeline(job, fmt::format("rank {}", job.world().rank()), window);
  if (!timeline) return;
  write_timeline(*timeline, folder);
  print_network_timeline(*timeline, "The last step, as measured:");
  print_files(folder);
}

}  // namespace lab
