#include "common/printable.h"

#include <fmt/format.h>

namespace lab {

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string result;
  for (const char c : text.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~')
      result += c;
    else
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return result + (text.size() > kLongest ? "..." : "");
}

}  // namespace lab
