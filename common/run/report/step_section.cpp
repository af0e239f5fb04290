// Where the time of one step went.
#include <fmt/format.h>

#include <string>

#include "common/format.h"
#include "common/io/markup.h"
#include "common/pipeline/drawing/drawing.h"
#include "common/run/report/report_sections.h"
#include "common/run/timeline/network_report.h"

namespace lab {
namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string segment(const char* classes, double share) {
  if (share <= 0) return "";
  return fmt::format("<i class=\"{}\" style=\"width:{:.2f}%\"></i>", classes, 100 * share);
}

std::string idle_row(const char* name, double share) {
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"wide\"><div class=\"bar\">{}</div></td>"
      "</tr>\n",
      name, percent(share), segment("waiting", share));
}

/// All ranks together: measured, by this schedule, by the formula.
std::string idle_table(const StepTimeline& step) {
  return "<h3>Idle time of all ranks</h3>\n<div class=\"scroll\"><table class=\"bars "
         "idles\"><tbody>\n" +
         idle_row("measured", idle_share(step.measured)) +
         idle_row("this schedule, in theory", idle_share(step.theory)) +
         idle_row("with GPipe or 1F1B on equal stages", step.ideal_idle_share) +
         "</tbody></table></div>\n<p class=\"about\">A rank is idle outside forward, backward, "
         "loss and update. Theory: the same schedule, with each pass taking its average time on "
         "its rank and messages taking none. Equal stages: (p−1)/(m+p−1) for p stages and "
         "m microbatches.</p>\n";
}

std::string shares_table(const Timeline& timeline) {
  std::string rows;
  for (const RankShare& share : rank_shares(timeline))
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"wide\"><div class=\"bar\">{}{}{}</div></td>"
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        html_escaped(share.name), segment("compute", share.compute),
        segment("communication", share.communication), segment("waiting", share.waiting),
        percent(share.compute), percent(share.communication), percent(share.waiting),
        percent(share.other));
  const auto head = [](const char* classes, const char* name) {
    return fmt::format("<th scope=\"col\"><i class=\"swatch {}\"></i>{}</th>", classes, name);
  };
  return "<h3>What each rank spent the step on</h3>\n<div class=\"scroll\"><table "
         "class=\"bars shares\"><thead><tr><th class=\"blank\"></th><th class=\"blank\"></th>" +
         head("compute", "compute") + head("communication", "communication") +
         head("waiting", "waiting") + head("lane", "other") + "</tr></thead><tbody>\n" + rows +
         "</tbody></table></div>\n<p class=\"about\">Compute: forwards, backwards, loss, update. A "
         "rank held up by a message or a collective counts as waiting until the other side "
         "arrives, and as communicating from then on, while data is on its way. Other: nothing "
         "was recorded.</p>\n";
}

}  // namespace

std::string step_section(const RunReport& report) {
  if (!report.timing || report.metrics.empty()) return "";
  const StepTimeline& step = *report.timing;
  return fmt::format(
      "<section><h2>One step, as measured</h2>\n"
      "<p class=\"about\">Step {}, {} from its beginning to the end of its last span. The tall row "
      "of each rank shows what it did, the lowest row what theory predicts, on the same clock from "
      "the first pass on.{} The numbers are microbatches; hover over a span for details.</p>\n"
      "{}{}{}</section>\n",
      format_count(report.metrics.back().step),
      format_time(makespan(step.measured), step.measured.unit),
      has_network(step.measured) ? " The row between them shows the collectives that "
                                   "travelled meanwhile."
                                 : "",
      timeline_grid_html(step), idle_table(step), shares_table(step.measured));
}

}  // namespace lab
