// The one exception type of the workbook.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace lab {

/// Something the user can understand and fix. The message is one line that says what is wrong,
/// where, and what to do; programs print it after "error: " and exit with a non-zero code.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with a formatted message unless `condition` holds.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(format, std::forward<Args>(args)...);
}

}  // namespace lab
