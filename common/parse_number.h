// The number that a whole text is.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace lab {

/// In decimal; nothing if the text is anything else, or the number does not fit into a T.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace lab
