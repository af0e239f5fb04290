// What goes wrong, as text.
#pragma once

#include <string>

#include "common/error.h"

namespace lab {

/// The message of the Error that `action` throws; empty if it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lab
