#include "common/io/markup.h"

#include "common/io/utf8.h"

namespace lab {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

}  // namespace

std::string html_escaped(std::string_view raw) {
  const std::string text = replace_invalid_utf8(raw);
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::string_view three = std::string_view(text).substr(i, 3);
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

}  // namespace lab
