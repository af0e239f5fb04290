// Timelines as an SVG figure.
#include <algorithm>

#include "common/error.h"
#include "common/io/markup.h"
#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/drawing/drawing.h"

namespace lab {
namespace {

// Pixels.
constexpr double kMargin = 20;
constexpr double kRowHeight = 30;
constexpr double kRowDistance = 38;
constexpr double kDigit = 7.2;           // of the labels in the cells
constexpr double kLabelMargin = 6;       // left and right of such a label, together
constexpr double kLetter = 7.4;          // of all other text
constexpr double kLegendLetter = 6.4;    // narrow enough for all entries at once
constexpr double kFiguresRoom = 130;     // "25 %" and "3" after each row
constexpr double kLeastTimeWidth = 640;  // narrower looks lost on a page
constexpr double kGreatestTimeWidth = 20000;

// On a card with its own background, to be legible on any page; dark where pages are dark. Each
// rule applies to this figure only, because a page may hold others.
constexpr const char* kStyle =
    ".timeline text{font:13px Lato,'Helvetica Neue',Arial,sans-serif;fill:#1f2933}"
    ".timeline .title{font-size:17px;font-weight:600}.timeline .faint{fill:#5b6876}"
    ".timeline .n{font-size:12px;fill:#fff;text-anchor:middle}.timeline .end{text-anchor:end}"
    ".timeline .mid{text-anchor:middle}"
    ".timeline .card{fill:#fff}.timeline .lane{fill:#eef1f4}.timeline .tick{stroke:#9aa5b1}"
    ".timeline .forward{fill:#2f6cc0}.timeline .forward.odd{fill:#4a86d8}"
    ".timeline .backward{fill:#1f8055}.timeline .backward.odd{fill:#35996b}"
    ".timeline .loss{fill:#b7791f}.timeline .optimizer{fill:#8e44ad}.timeline .add{fill:#0e7490}"
    ".timeline .collective{fill:#c2410c}.timeline .send{fill:#b3bcc6}.timeline .recv{fill:#d0d7de}"
    "@media(prefers-color-scheme:dark){.timeline text{fill:#e4e8ec}.timeline .faint{fill:#a3aeb9}"
    ".timeline .n{fill:#fff}.timeline .card{fill:#1b2129}.timeline .lane{fill:#28303a}"
    ".timeline .tick{stroke:#66717d}.timeline .send{fill:#5d6875}.timeline .recv{fill:#434d59}}";

std::string label(double x, double y, const char* classes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, classes,
                     html_escaped(text));
}

bool is_pass(const Span& span) { return span.kind <= SpanKind::kLoss && span.microbatch >= 0; }

double label_width(int microbatch) {
  return static_cast<double>(std::to_string(microbatch).size()) * kDigit + kLabelMargin;
}

class Figure {
 public:
  Figure(const Timeline& timeline, const std::string& title)
      : timeline_(timeline), title_(title), time_(makespan(timeline)) {
    size_t longest = 0;
    for (int rank = 0; rank < timeline.rank_count(); ++rank)
      longest = std::max(longest, rank_name(timeline, rank).size());
    left_ = kMargin + static_cast<double>(longest) * kLetter + 10;
    top_ = kMargin + (title.empty() ? 24 : 52);
    time_width_ = time_width();
    bottom_ = top_ + timeline.rank_count() * kRowDistance;
  }

  std::string text() const {
    const double width = left_ + time_width_ + kFiguresRoom + kMargin;
    const double height = bottom_ + 80;
    std::string svg = fmt::format(
        "<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n"
        "<style>{3}</style>\n<rect class=\"card\" width=\"100%\" height=\"100%\" rx=\"12\"/>\n",
        width, height, html_escaped(title_.empty() ? "Timeline of a pipeline" : title_), kStyle);
    svg += heading();
    for (int rank = 0; rank < timeline_.rank_count(); ++rank) svg += row(rank);
    return svg + scale() + legend() + "</svg>\n";
  }

 private:
  // Wide enough for every number to fit into the cell of its pass, within reason.
  double time_width() const {
    double width = kLeastTimeWidth;
    for (const RankTimeline& rank : timeline_.ranks)
      for (const Span& span : rank.spans)
        if (is_pass(span) && span.length() > 0)
          width = std::max(width, label_width(span.microbatch) * time_ / span.length());
    return std::min(width, kGreatestTimeWidth);
  }

  double x(double time) const { return left_ + (time_ > 0 ? time / time_ * time_width_ : 0); }

  std::string heading() const {
    std::string svg;
    if (!title_.empty()) svg += label(kMargin, kMargin + 14, "title", title_);
    svg += label(left_, top_ - 10, "faint",
                 fmt::format("makespan {}, idle {:.1f} % of all ranks' time",
                             format_time(time_, timeline_.unit), 100 * idle_share(timeline_)));
    svg += label(left_ + time_width_ + 56, top_ - 10, "faint end", "idle");
    return svg + label(left_ + time_width_ + kFiguresRoom, top_ - 10, "faint end", "in flight");
  }

  std::string row(int rank) const {
    const double y = top_ + rank * kRowDistance;
    const double base = y + kRowHeight / 2 + 4.5;
    std::string svg = label(left_ - 10, base, "end", rank_name(timeline_, rank));
    svg += fmt::format(
        "<rect class=\"lane\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>\n", left_,
        y, time_width_, kRowHeight);
    for (const Span& span : timeline_.ranks[static_cast<size_t>(rank)].spans)
      svg += cell(span, rank, y);
    svg += label(left_ + time_width_ + 56, base, "end",
                 fmt::format("{:.0f} %", 100 * idle_share(timeline_, rank)));
    return svg + label(left_ + time_width_ + kFiguresRoom, base, "end",
                       std::to_string(peak_in_flight(timeline_, rank)));
  }

  std::string cell(const Span& span, int rank, double y) const {
    const double width = x(span.end) - x(span.start);
    const bool odd = span.microbatch % 2 == 1;
    std::string svg = fmt::format(
        "<g><title>{}: {} to {}</title><rect class=\"{}{}\" x=\"{:.2f}\" y=\"{:.1f}\" "
        "width=\"{:.2f}\" height=\"{}\"/>",
        html_escaped(describe_span(span, rank)), format_time(span.start, timeline_.unit),
        format_time(span.end, timeline_.unit), span_name(span.kind), odd ? " odd" : "",
        x(span.start), y, std::max(width - (width > 4 ? 1 : 0), 0.3), kRowHeight);
    if (is_pass(span) && width >= label_width(span.microbatch) - 0.1)
      svg +=
          fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"n\">{}</text>",
                      (x(span.start) + x(span.end)) / 2, y + kRowHeight / 2 + 4.3, span.microbatch);
    return svg + "</g>\n";
  }

  std::string scale() const {
    constexpr double kPixelsPerTick = 70;
    std::string svg;
    for (const Tick& tick : ticks_of(time_, timeline_.unit, time_width_ / kPixelsPerTick)) {
      svg +=
          fmt::format("<path class=\"tick\" d=\"M{:.1f} {:.1f}v5\"/>\n", x(tick.time), bottom_ - 4);
      svg += label(x(tick.time), bottom_ + 16, "faint mid", tick.label);
    }
    return svg;
  }

  std::string legend() const {
    std::string svg;
    double place = left_;
    const double y = bottom_ + 44;
    const auto entry = [&](std::string_view classes, const std::string& text) {
      svg += fmt::format(
          "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"20\" "
          "height=\"14\"/>\n",
          classes, place, y - 11);
      svg += label(place + 26, y, "", text);
      place += 44 + static_cast<double>(text.size()) * kLegendLetter;
    };
    for (const SpanKind kind : kinds_that_occur(timeline_))
      entry(span_name(kind), span_meaning(kind));
    entry("lane", "idle");
    return svg +
           label(left_, y + 24, "faint", "Numbers are microbatches; in flight: the most at once.");
  }

  const Timeline& timeline_;
  const std::string title_;
  double time_;
  double left_ = 0;
  double top_ = 0;
  double bottom_ = 0;
  double time_width_ = 0;
};

}  // namespace

std::string draw_svg(const Timeline& timeline, const std::string& title) {
  return Figure(timeline, title).text();
}

}  // namespace lab
