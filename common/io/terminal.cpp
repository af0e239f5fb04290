#include "common/io/terminal.h"

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

}  // namespace lab
