// What was sent from rank to rank in the measured step.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/format.h"
#include "common/io/markup.h"
#include "common/pipeline/drawing/drawing.h"
#include "common/run/report/report_sections.h"

namespace lab {
namespace {

constexpr int kMaxMatrix = 12;   // ranks; more than that are shown as a list
constexpr size_t kMaxRows = 40;  // of the list

constexpr const char* kMatrixLegend =
    "<div class=\"keys\"><span class=\"key\"><i class=\"box forward\"></i>mostly messages</span>\n"
    "<span class=\"key\"><i class=\"box communication\"></i>mostly collectives</span></div>\n"
    "<p class=\"about\">Small numbers: how many messages and collectives.</p>\n";

std::string in_words(const LinkTraffic& link) {
  std::vector<std::string> parts;
  if (link.messages > 0)
    parts.push_back(fmt::format("{}, {}", counted(link.messages, "message"),
                                format_bytes(static_cast<double>(link.message_bytes))));
  if (link.collectives > 0)
    parts.push_back(fmt::format("{}, {}", counted(link.collectives, "collective"),
                                format_bytes(link.collective_bytes)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// The colour of a link shows what most of its bytes belong to, its strength how many they are.
std::string tint(const LinkTraffic& link, double most) {
  const bool collective = link.collective_bytes > static_cast<double>(link.message_bytes);
  const double strength = most > 0 ? 6 + 34 * link.bytes() / most : 6;
  return fmt::format("background:color-mix(in srgb,var(--{}) {:.0f}%,transparent)",
                     collective ? "communication" : "forward", strength);
}

std::string cell(const std::vector<LinkTraffic>& links, int from, int to, double most) {
  if (from == to) return "<td class=\"self\"></td>";
  const auto link = std::ranges::find_if(
      links, [&](const LinkTraffic& l) { return l.from == from && l.to == to; });
  if (link == links.end()) return "<td></td>";
  return fmt::format("<td style=\"{}\" title=\"rank {} to rank {}: {}\">{}<small>{}</small></td>",
                     tint(*link, most), from, to, in_words(*link), format_bytes(link->bytes()),
                     link->messages + link->collectives);
}

std::string matrix(const Timeline& timeline, const std::vector<LinkTraffic>& links, double most) {
  std::string html = "<table class=\"matrix\"><thead><tr><th>from \\ to</th>";
  for (int to = 0; to < timeline.rank_count(); ++to)
    html += fmt::format("<th scope=\"col\">rank {}</th>", to);
  html += "</tr></thead><tbody>\n";
  for (int from = 0; from < timeline.rank_count(); ++from) {
    html += fmt::format("<tr><th scope=\"row\">rank {}<span>, {}</span></th>", from,
                        html_escaped(rank_name(timeline, from)));
    for (int to = 0; to < timeline.rank_count(); ++to) html += cell(links, from, to, most);
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string list(std::vector<LinkTraffic> links) {
  std::ranges::stable_sort(links, std::ranges::greater(), &LinkTraffic::bytes);
  std::string html =
      "<table><thead><tr><th>link</th><th>bytes</th><th>messages</th><th>collectives</th></tr>"
      "</thead><tbody>\n";
  for (size_t i = 0; i < std::min(links.size(), kMaxRows); ++i)
    html += fmt::format(
        "<tr><th scope=\"row\">{} → {}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n", links[i].from,
        links[i].to, format_bytes(links[i].bytes()), links[i].messages, links[i].collectives);
  html += "</tbody></table>\n";
  if (links.size() > kMaxRows)
    html +=
        fmt::format("<p class=\"note\">The {} busiest of {} links.</p>\n", kMaxRows, links.size());
  return html;
}

}  // namespace

std::string links_section(const RunReport& report) {
  if (!report.timing) return "";
  const Timeline& timeline = report.timing->measured;
  const std::vector<LinkTraffic> links = link_traffic(timeline);
  if (links.empty()) return "";
  const bool is_matrix = timeline.rank_count() <= kMaxMatrix;
  LinkTraffic sum;
  double most = 0;
  for (const LinkTraffic& link : links) {
    sum.messages += link.messages;
    sum.message_bytes += link.message_bytes;
    sum.collectives += link.collectives;
    sum.collective_bytes += link.collective_bytes;
    most = std::max(most, link.bytes());
  }
  return fmt::format(
      "<section><h2>Bytes by link</h2>\n<p class=\"about\">In the measured step, from rank to "
      "rank. "
      "Messages between stages: {} in {}. Collectives, such as the all-reduce of gradients: "
      "{}.</p>\n<div class=\"links\"><div class=\"scroll\" tabindex=\"0\">{}</div>\n<div>{}"
      "<p class=\"about\">An all-reduce of B bytes among n ranks counts as a ring: 2(n−1)/n · B "
      "from each member to the next. An all-gather: (n−1) times the input, likewise. A broadcast: "
      "B from the root to each of the others.</p></div></div></section>\n",
      format_bytes(static_cast<double>(sum.message_bytes)), format_count(sum.messages),
      format_bytes(sum.collective_bytes), is_matrix ? matrix(timeline, links, most) : list(links),
      is_matrix ? kMatrixLegend : "");
}

}  // namespace lab
