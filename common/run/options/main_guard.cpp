#include "common/run/options/main_guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "common/io/terminal.h"
#include "common/run/launch/signal_thread.h"
#include "common/tensor/spin_control.h"

namespace lab {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

/// A terminal would obey control characters.
int report(std::string message, int code) {
  std::fflush(stdout);
  std::ranges::replace_if(
      message, [](unsigned char c) { return std::iscntrl(c) != 0 && c != '\n'; }, '?');
  print_if_possible(stderr, "error: {}\n", message);
  return code;
}

/// What was printed may still be in a buffer. Throws Error if it cannot be written.
void write_output() {
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  // The reason for an earlier failure is no longer known.
  const std::string reason = errno != 0 ? std::strerror(errno) : "is the disk full?";
  require(written, "cannot write the output: {}", reason);
}

/// After `program >&-`, the next file or connection would be the standard output.
void open_missing_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest free number
}

}  // namespace

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  open_missing_standard_descriptors();
  try {
    const SignalThread signals;  // before any other thread
    const SpinControl spin;
    int code = 0;
    try {
      code = body(argc, argv);
    } catch (const HelpRequested& help) {
      fmt::print("{}", help.what());
    }
    if (code == 0) write_output();
    return code;
  } catch (const UsageError& error) {
    return report(error.what(), kUsage);
  } catch (const std::bad_alloc&) {
    return report("out of memory; try a smaller --batch or model", kFailure);
  } catch (const std::exception& error) {
    return report(error.what(), kFailure);
  }
}

}  // namespace lab
