#include "common/io/utf8.h"

#include <utf8.h>

namespace lab {

size_t find_invalid_utf8(std::string_view text) {
  return static_cast<size_t>(utf8::find_invalid(text.begin(), text.end()) - text.begin());
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
