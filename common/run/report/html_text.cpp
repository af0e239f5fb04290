// Texts and numbers as the report writes them.
#include "common/run/report/html_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/data/utf8.h"
#include "common/format_count.h"

namespace lab {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string escaped_valid(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view three = text.substr(i, 3);
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else if (three == "\xEF\xBF\xBE" || three == "\xEF\xBF\xBF") {  // U+FFFE, U+FFFF
      result += kReplacement;
      i += 2;
    } else if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') {
      result += kReplacement;
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t valid = find_invalid_utf8(text);
    result += escaped_valid(text.substr(0, valid));
    if (valid == text.size()) break;
    result += kReplacement;
    text.remove_prefix(valid + 1);
  }
  return result;
}

std::string format_bytes(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  const int decimals = bytes < 9.995 ? 2 : bytes < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits.at(unit));
}

std::string duration_in_words(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(std::round(seconds), 1e15));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string format_whole(double value) {
  if (!(std::abs(value) < 1e15)) return fmt::format("{:g}", value);
  return format_count(std::llround(std::max(0.0, value)));
}

}  // namespace lab
