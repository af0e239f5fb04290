// What the tensors of each rank took.
#include <fmt/format.h>

#include "common/format.h"
#include "common/io/markup.h"
#include "common/run/report/report_sections.h"

namespace lab {

std::string memory_section(const RunReport& report) {
  if (report.memory.empty()) return "";
  const auto cell = [](int64_t bytes) {
    return fmt::format("<td>{}</td>", bytes > 0 ? format_bytes(static_cast<double>(bytes)) : "–");
  };
  std::string html =
      "<section><h2>Memory</h2>\n<div class=\"scroll\"><table><thead><tr><th>rank</th>";
  for (size_t kind = 0; kind < kMemoryKinds; ++kind)
    html += fmt::format("<th>{}</th>", name_of(static_cast<MemoryKind>(kind)));
  html += "<th>together</th><th>planned</th></tr></thead><tbody>\n";
  for (const RankMemory& rank : report.memory) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", html_escaped(rank.name));
    for (const int64_t bytes : rank.peaks) html += cell(bytes);
    html += cell(rank.peak) + cell(rank.planned) + "</tr>\n";
  }
  return html +
         "</tbody></table></div>\n<p class=\"about\">The peak of each kind of tensor in "
         "training; together: the peak of their sum. Communication: tensors gathered for a "
         "checkpoint. Planned: the estimate of <code>./workbook plan</code>, "
         "without those. Not counted: samples that rank 0 writes, and libraries' memory.</p>"
         "</section>\n";
}

}  // namespace lab
