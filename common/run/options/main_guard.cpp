// How a program of the workbook ends: one line on stderr and an exit code, whatever goes wrong.
#include "common/run/options/main_guard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "common/io/terminal.h"
#include "common/run/launch/signal_thread.h"

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
  // The reason of an earlier failure is no longer known.
  const std::string reason = errno != 0 ? std::strerror(errno) : "is the disk full?";
  require(written, "cannot write the output: {}", reason);
}

/// After `program >&-`, the next file or connection would be the standard output.
void open_missing_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest free number
}

/// By default, OpenMP's threads spin while they wait for each other, longer than another program's
/// time slice: with one busy core, a step takes several times as long. Sleeping at once costs a
/// tenth of a step on an idle machine. Spinning for this many turns, less than a millisecond,
/// avoids both (docs/measurements.md). The runtime reads its settings before main, so the program
/// must start again to change them.
void make_waiting_threads_sleep_soon(int argc, char** argv) {
  constexpr const char* kTurns = "15000";
  if (argc == 0 || std::getenv("GOMP_SPINCOUNT") != nullptr ||
      std::getenv("OMP_WAIT_POLICY") != nullptr)
    return;
  setenv("GOMP_SPINCOUNT", kTurns, 1);
  std::error_code error;  // under its own path, so that it keeps its name in `ps`
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  execv(program.c_str(), argv);  // it returns only if that is impossible
}

}  // namespace

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  make_waiting_threads_sleep_soon(argc, argv);
  open_missing_standard_descriptors();
  try {
    const SignalThread signals;
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
