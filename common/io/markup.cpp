#include "common/io/markup.h"

#include "common/io/utf8.h"

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

}  // namespace lab
