// How a program of the workbook ends: one line on stderr and an exit code, whatever goes wrong.
#include "common/run/options/main_guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#include "common/run/launch/signal_thread.h"

namespace lab {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

int report(const char* message, int code) {
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", message);
  return code;
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
    const SignalThread signals;
    return body(argc, argv);
  } catch (const HelpRequested& help) {
    fmt::print("{}", help.what());
    return 0;
  } catch (const UsageError& error) {
    return report(error.what(), kUsage);
  } catch (const std::bad_alloc&) {
    return report("out of memory; try a smaller --batch or model", kFailure);
  } catch (const std::exception& error) {
    return report(error.what(), kFailure);
  }
}

}  // namespace lab
