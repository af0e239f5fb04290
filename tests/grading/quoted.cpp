#include "tests/grading/quoted.h"

#include <cctype>

#include "common/io/utf8.h"

namespace lab::grading {

std::string quoted(std::string_view text, std::string_view margin) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::string result;
  for (const char c : replace_invalid_utf8(text)) {
    if (c == '\n')
      result.append("\n").append(margin);
    else
      result += std::iscntrl(static_cast<unsigned char>(c)) != 0 && c != '\t' ? '?' : c;
  }
  return result;
}

}  // namespace lab::grading
