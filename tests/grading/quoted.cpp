#include "tests/grading/quoted.h"

#include <cctype>

#include "common/io/utf8.h"

namespace lab::grading {
namespace {

/// With U+FFFD for every byte that is not valid UTF-8.
std::string as_utf8(std::string_view text) {
  std::string result;
  for (size_t bad = find_invalid_utf8(text); bad < text.size(); bad = find_invalid_utf8(text)) {
    result.append(text.substr(0, bad)).append("\uFFFD");
    text.remove_prefix(bad + 1);
  }
  return result.append(text);
}

}  // namespace

std::string quoted(std::string_view text, std::string_view margin) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::string result;
  for (const char c : as_utf8(text)) {
    if (c == '\n')
      result.append("\n").append(margin);
    else
      result += std::iscntrl(static_cast<unsigned char>(c)) != 0 && c != '\t' ? '?' : c;
  }
  return result;
}

}  // namespace lab::grading
