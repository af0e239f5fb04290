// The exceptions of the workbook: what the user can understand and fix.
#pragma once

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace lab {

/// The message is one line that says what is wrong, where, and what to do; programs print it after
/// "error: " and exit with a non-zero code.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A command line or an environment that makes no sense: programs exit with code 2, as for an
/// unknown option.
class UsageError : public Error {
 public:
  using Error::Error;
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

/// The message of what `action` throws; empty if it throws nothing.
template <typename Action>
std::string failure_of(const Action& action) {
  try {
    action();
    return "";
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? "an error without a message" : text;
  }
}

}  // namespace lab
