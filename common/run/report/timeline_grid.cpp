// The grid of a step: what each rank did, above what theory predicts.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "common/format.h"
#include "common/io/markup.h"
#include "common/pipeline/drawing/drawing.h"
#include "common/pipeline/standstill.h"
#include "common/run/report/report_sections.h"
#include "common/run/timeline/network_report.h"

namespace lab {
namespace {

constexpr size_t kMaxCells = 3000;   // each for measured and theory
constexpr double kLeastWidth = 560;  // of the time axis, in pixels
constexpr double kGreatestWidth = 6000;
constexpr double kMeasuredHeight = 26;
constexpr double kNetworkHeight = 12;
constexpr double kTheoryHeight = 12;
constexpr double kGap = 3;

bool is_pass(const Span& span) {
  return (span.kind == SpanKind::kForward || span.kind == SpanKind::kBackward) &&
         span.microbatch >= 0;
}

double label_width(const Span& span) {
  return 6 + 7.2 * static_cast<double>(std::to_string(span.microbatch).size());
}

using Marks = std::vector<std::vector<bool>>;

/// Which spans are drawn, by rank: the longest ones.
Marks marks_of(const Timeline& timeline) {
  struct Place {
    double length;
    size_t rank;
    size_t span;
  };
  std::vector<Place> places;
  Marks marks;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const std::vector<Span>& spans = timeline.ranks[rank].spans;
    for (size_t i = 0; i < spans.size(); ++i) places.push_back({spans[i].length(), rank, i});
    marks.emplace_back(spans.size(), false);
  }
  std::ranges::stable_sort(places, std::greater<>(), &Place::length);
  places.resize(std::min(places.size(), kMaxCells));
  for (const Place& place : places) marks[place.rank][place.span] = true;
  return marks;
}

/// Wide enough for the numbers of three quarters of all passes: some are always much shorter than
/// the rest.
double readable_width(const Timeline& timeline, double time) {
  std::vector<double> widths;
  for (const RankTimeline& rank : timeline.ranks)
    for (const Span& span : rank.spans)
      if (is_pass(span) && span.length() > 0)
        widths.push_back(label_width(span) * time / span.length());
  if (widths.empty()) return 0;
  const auto place = widths.begin() + static_cast<std::ptrdiff_t>(3 * widths.size() / 4);
  std::ranges::nth_element(widths, place);
  return *place;
}

double first_pass(const Timeline& timeline) {
  double first = makespan(timeline);
  for (const RankTimeline& rank : timeline.ranks)
    for (const Span& span : rank.spans)
      if (is_pass(span)) first = std::min(first, span.start);
  return first;
}

class Grid {
 public:
  explicit Grid(const StepTimeline& step)
      : step_(step),
        there_(counterpart_times(step.measured)),
        shift_(first_pass(step.measured)),
        time_(std::max(makespan(step.measured), shift_ + makespan(step.theory))),
        network_(has_network(step.measured)),
        marks_(marks_of(step.measured)),
        theory_marks_(marks_of(step.theory)),
        width_(std::clamp(readable_width(step.measured, time_), kLeastWidth, kGreatestWidth)) {}

  std::string html() const {
    std::string html = fmt::format(
        "<figure>\n<div class=\"scroll\" tabindex=\"0\"><div class=\"grid\" "
        "style=\"min-width:{:.0f}px\">\n"
        "<span class=\"name\"></span><span></span><span class=\"head\">idle</span>\n",
        width_ + 190);
    for (int rank = 0; rank < step_.measured.rank_count(); ++rank) html += row(rank);
    return html + axis() + "</div></div>\n" + legend() + left_out() + "</figure>\n";
  }

 private:
  double percent(double time) const { return time_ > 0 ? 100 * time / time_ : 0; }
  std::string time_text(double time) const { return format_time(time, step_.measured.unit); }

  std::string row(int rank) const {
    const double theory_y = kMeasuredHeight + kGap + (network_ ? kNetworkHeight + kGap : 0);
    std::string svg = lane(0, kMeasuredHeight);
    const auto index = static_cast<size_t>(rank);
    const std::vector<Span>& spans = step_.measured.ranks[index].spans;
    for (size_t i = 0; i < spans.size(); ++i)
      if (marks_[index][i]) svg += measured_cell(spans[i], rank, there_[index][i]);
    if (network_) svg += network_lane(rank);
    svg += lane(theory_y, kTheoryHeight);
    svg += "<g class=\"theory\">\n";
    const std::vector<Span>& expected = step_.theory.ranks[index].spans;
    for (size_t i = 0; i < expected.size(); ++i)
      if (theory_marks_[index][i]) svg += theory_cell(expected[i], rank, theory_y);
    return fmt::format(
        "<span class=\"name\">{}</span><svg height=\"{}\">{}</g>\n</svg>"
        "<span class=\"idle\">{:.0f} %<small>{:.0f} %</small></span>\n",
        html_escaped(rank_name(step_.measured, rank)), theory_y + kTheoryHeight, svg,
        100 * idle_share(step_.measured, rank), 100 * idle_share(step_.theory, rank));
  }

  static std::string lane(double y, double height) {
    return fmt::format("<rect class=\"lane\" width=\"100%\" y=\"{}\" height=\"{}\"/>\n", y, height);
  }

  std::string rect(std::string_view classes, double start, double end, double y, double height,
                   const std::string& tip) const {
    if (end <= start) return "";
    return fmt::format(
        "<rect class=\"{}\" x=\"{:.3f}%\" width=\"{:.3f}%\"{} height=\"{}\"><title>{}</title>"
        "</rect>\n",
        classes, percent(start), percent(end - start),
        y > 0 ? fmt::format(" y=\"{}\"", y) : std::string(), height, tip);
  }

  static std::string classes(const Span& span) {
    return fmt::format("{}{}", span_name(span.kind), span.microbatch % 2 == 1 ? " odd" : "");
  }

  std::string tip(const Span& span, int rank) const {
    return fmt::format("{}: {} to {}", html_escaped(describe_span(span, rank)),
                       time_text(span.start), time_text(span.end));
  }

  std::string measured_cell(const Span& span, int rank, double there) const {
    if (!is_compute(span.kind))
      return rect("waiting", span.start, there, 0, kMeasuredHeight, tip(span, rank)) +
             rect("communication", there, span.end, 0, kMeasuredHeight,
                  fmt::format("{}, data on its way for {}", tip(span, rank),
                              time_text(span.end - there)));
    std::string svg =
        rect(classes(span), span.start, span.end, 0, kMeasuredHeight, tip(span, rank));
    if (is_pass(span) && percent(span.length()) * width_ / 100 >= label_width(span) - 0.1)
      svg += fmt::format("<text class=\"number\" x=\"{:.3f}%\" y=\"17.5\">{}</text>\n",
                         percent((span.start + span.end) / 2), span.microbatch);
    return svg;
  }

  /// What travels for the rank while it computes.
  std::string network_lane(int rank) const {
    constexpr double kY = kMeasuredHeight + kGap;
    std::string svg = lane(kY, kNetworkHeight);
    for (const Span& message : step_.measured.ranks[static_cast<size_t>(rank)].messages)
      if (message.kind == SpanKind::kCollective)
        svg += rect(message.microbatch % 2 == 1 ? "communication odd" : "communication",
                    message.start, message.end, kY, kNetworkHeight,
                    fmt::format("on its way: {}", tip(message, rank)));
    return svg;
  }

  std::string theory_cell(Span span, int rank, double y) const {
    span.start += shift_;
    span.end += shift_;
    return rect(is_compute(span.kind) ? classes(span) : "waiting", span.start, span.end, y,
                kTheoryHeight, "in theory " + tip(span, rank));
  }

  std::string axis() const {
    std::string svg;
    for (const Tick& tick : ticks_of(time_, step_.measured.unit, width_ / 80)) {
      const double place = percent(tick.time);
      svg += fmt::format("<line class=\"axis\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y2=\"5\"/>", place);
      svg += fmt::format("<text class=\"{}\" x=\"{:.3f}%\" y=\"18\">{}</text>\n",
                         place == 0   ? "start"
                         : place > 97 ? "end"
                                      : "middle",
                         place, tick.label);
    }
    return fmt::format(
        "<span class=\"name\"></span><svg class=\"axes\" height=\"24\">{}</svg><span></span>\n",
        svg);
  }

  std::string legend() const {
    std::string html = "<figcaption class=\"keys\">";
    bool stands_still = false;
    for (const SpanKind kind : kinds_that_occur(step_.measured)) {
      if (is_compute(kind))
        html += fmt::format("<span class=\"key\"><i class=\"box {}\"></i>{}</span>\n",
                            span_name(kind), span_meaning(kind));
      stands_still = stands_still || !is_compute(kind);
    }
    if (stands_still)
      html +=
          "<span class=\"key\"><i class=\"box waiting\"></i>waiting for another rank</span>\n"
          "<span class=\"key\"><i class=\"box communication\"></i>data on its way</span>\n";
    html += "<span class=\"key\"><i class=\"box lane\"></i>nothing recorded</span>";
    return html + "</figcaption>\n";
  }

  std::string left_out() const {
    int64_t number = 0;
    for (const std::vector<bool>& rank : marks_) number += std::ranges::count(rank, false);
    if (number == 0) return "";
    return fmt::format("<p class=\"note\">The {} shortest spans are not drawn.</p>\n",
                       format_count(number));
  }

  const StepTimeline& step_;
  std::vector<std::vector<double>> there_;
  double shift_;
  double time_;
  bool network_;  // whether something travels while ranks compute
  Marks marks_;
  Marks theory_marks_;
  double width_;
};

}  // namespace

std::string timeline_grid_html(const StepTimeline& step) { return Grid(step).html(); }

}  // namespace lab
