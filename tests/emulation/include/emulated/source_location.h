// Where something was called.
#pragma once

namespace lab::emulation {

/// As std::source_location, which clang knows from version 16 on only.
struct SourceLocation {
  const char* file;
  int line;

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace lab::emulation
