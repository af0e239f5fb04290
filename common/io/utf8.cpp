#include "common/io/utf8.h"

#include <utf8.h>

namespace lab {

size_t find_invalid_utf8(std::string_view text) {
  return static_cast<size_t>(utf8::find_invalid(text.begin(), text.end()) - text.begin());
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  for (size_t bad = find_invalid_utf8(text); bad < text.size(); bad = find_invalid_utf8(text)) {
    result.append(text.substr(0, bad)).append("\uFFFD");
    text.remove_prefix(bad + 1);
  }
  return result.append(text);
}

bool is_unfinished_utf8(std::string_view text) {
  if (text.empty()) return false;
  try {
    auto at = text.begin();
    utf8::next(at, text.end());
  } catch (const utf8::not_enough_room&) {
    return true;
  } catch (const utf8::exception&) {
  }
  return false;
}

}  // namespace lab
