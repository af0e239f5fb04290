// How a program of the workbook ends: one line on stderr and an exit code, whatever goes wrong.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "common/error.h"

namespace lab {

/// Not an error: the user asked for help (--help). Exit code 0.
class HelpRequested : public std::exception {
 public:
  explicit HelpRequested(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Calls `body(argc, argv)` and returns its exit code. An exception becomes `error: ...` on stderr
/// and exit code 1 (UsageError: 2), as does output that cannot be written. Signals are handled by a
/// dedicated thread (SignalThread). Standard input, output and error are connected to /dev/null if
/// they are closed. On a busy machine OpenMP's threads spin less (SpinControl).
int run_main(int argc, char** argv, const std::function<int(int, char**)>& body);

}  // namespace lab
