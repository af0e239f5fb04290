#include "common/io/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace lab {
namespace {

/// Set, and neither "" nor "0".
bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && !std::string_view(value).empty() && std::string_view(value) != "0";
}

}  // namespace

bool wants_color(int descriptor) {
  if (is_set("NO_COLOR")) return false;
  return is_set("CLICOLOR_FORCE") || isatty(descriptor) == 1;
}

TerminalSize terminal_size(int descriptor) {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

}  // namespace lab
