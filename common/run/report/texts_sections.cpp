// What the model wrote, and the configuration.
#include <fmt/format.h>

#include <string>

#include "common/format.h"
#include "common/io/markup.h"
#include "common/run/report/report_sections.h"

namespace lab {
namespace {

constexpr size_t kMaxStories = 24;
constexpr size_t kMaxLetters = 4000;  // bytes of a story
constexpr size_t kMaxFactLetters = 300;

std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return html_escaped(text);
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // a character
  return html_escaped(text.substr(0, end)) + " …";
}

std::string story(const SampleText& sample) {
  const std::string when = sample.step == 0
                               ? "before the first step"
                               : fmt::format("after step {}", format_count(sample.step));
  return fmt::format("<article class=\"story\"><h3>{}</h3><p>{}</p></article>\n", when,
                     cut(sample.text, kMaxLetters));
}

}  // namespace

std::string stories_section(const RunReport& report) {
  const size_t count = report.samples.size();
  if (count == 0) return "";
  const size_t shown = std::min(count, kMaxStories);
  std::string html =
      "<section><h2>What it wrote on the way</h2>\n<p class=\"about\">The model continues a text, "
      "using what it had learned by then.";
  if (shown < count) html += fmt::format(" {} of {} samples.", shown, count);
  html += "</p>\n<div class=\"stories\">\n";
  for (size_t i = 0; i < shown; ++i)  // the first, the last, and evenly between
    html += story(report.samples[shown == 1 ? 0 : i * (count - 1) / (shown - 1)]);
  return html + "</div></section>\n";
}

std::string facts_section(const RunReport& report) {
  if (report.facts.empty()) return "";
  std::string html = "<section><h2>Configuration</h2>\n<div class=\"facts\">\n";
  for (const FactGroup& group : report.facts) {
    html += "<div>";
    if (!group.title.empty()) html += "<h3>" + cut(group.title, kMaxFactLetters) + "</h3>";
    html += "<dl>\n";
    for (const auto& fact : group.facts)
      html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", cut(fact.name, kMaxFactLetters),
                          cut(fact.value, kMaxFactLetters));
    html += "</dl></div>\n";
  }
  return html + "</div></section>\n";
}

}  // namespace lab
