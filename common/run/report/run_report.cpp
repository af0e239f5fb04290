#include "common/run/report/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/format.h"
#include "common/io/markup.h"
#include "common/run/report/report_sections.h"
#include "common/run/report/report_style.h"

namespace lab {
namespace {

std::string tile(const char* name, const std::string& value, const std::string& small) {
  return fmt::format("<div class=\"tile\"><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name,
                     value, small);
}

std::string step_in_words(int64_t step) { return fmt::format("step {}", format_count(step)); }

double median_speed(const std::vector<StepRecord>& metrics) {
  std::vector<double> speeds;
  for (const StepRecord& record : metrics)
    if (std::isfinite(record.tokens_per_second)) speeds.push_back(record.tokens_per_second);
  if (speeds.empty()) return 0;
  const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
  std::ranges::nth_element(speeds, middle);
  return *middle;
}

/// The run in a few numbers.
std::string tiles(const RunReport& report) {
  if (report.metrics.empty()) return "";
  const StepRecord& last = report.metrics.back();
  std::string html = "<dl class=\"tiles\">\n";
  const auto validated =
      std::find_if(report.metrics.rbegin(), report.metrics.rend(),
                   [](const StepRecord& record) { return record.val_loss.has_value(); });
  if (validated != report.metrics.rend())
    html += tile("validation loss", fmt::format("{:.3f}", *validated->val_loss),
                 step_in_words(validated->step));
  html += tile("training loss", fmt::format("{:.3f}", last.loss), step_in_words(last.step));
  html += tile("speed", format_count(std::llround(std::min(median_speed(report.metrics), 1e15))),
               "tokens/s, median of the steps");
  html += tile("time", duration_in_words(last.seconds),
               fmt::format("for {} steps", format_count(last.step)));
  if (report.timing && report.timing->measured.rank_count() > 1)
    html += tile("idle", fmt::format("{:.0f} %", 100 * idle_share(report.timing->measured)),
                 fmt::format("of {} ranks' time, {}", report.timing->measured.rank_count(),
                             step_in_words(last.step)));
  return html + "</dl>\n";
}

std::string whose(const std::string& labs) {
  if (labs == "mine")
    return "<p class=\"whose own\">Trained by your code: all six labs that this run uses are your "
           "own work.</p>\n";
  if (labs == "student")
    return "<p class=\"whose own\">Trained by your lab 06, on the reference solutions of labs 01 "
           "to 05.</p>\n";
  if (labs == "solution")
    return "<p class=\"whose\">Trained by the reference solutions of the labs. With "
           "<code>--mine</code>, your own labs train a mesh.</p>\n";
  return "";
}

std::string notes(const RunReport& report) {
  if (report.notes.empty()) return "";
  std::string html = "<ul class=\"notes\">\n";
  for (const std::string& note : report.notes) html += "<li>" + html_escaped(note) + "</li>\n";
  return html + "</ul>\n";
}

std::string header(const RunReport& report) {
  std::string html = "<header><h1>" + html_escaped(report.title) + "</h1>\n";
  if (!report.subtitle.empty())
    html += "<p class=\"subtitle\">" + html_escaped(report.subtitle) + "</p>\n";
  return html + whose(report.whose_labs) + tiles(report) + notes(report) + "</header>\n";
}

}  // namespace

std::string report_html(const RunReport& report) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n",
      html_escaped(report.title), report_style());
  html += header(report) + learning_section(report) + stories_section(report) +
          step_section(report) + links_section(report) + memory_section(report) +
          speed_section(report) + facts_section(report);
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace lab
