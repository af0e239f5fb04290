// What a terminal can show.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace lab {

/// True if `descriptor` is a terminal, or colour is requested anyway (CLICOLOR_FORCE, which the
/// launcher sets for its ranks when its own output is a terminal); never with NO_COLOR
/// (https://no-color.org, https://bixense.com/clicolors).
bool wants_color(int descriptor);

struct TerminalSize {
  int rows = 24;
  int columns = 80;
};

/// That of the terminal; 24 x 80 if it does not say, or there is none.
TerminalSize terminal_size(int descriptor);

/// Prints where nobody may read any more, as on a terminal that was closed. fmt::print would throw.
template <typename... Args>
void print_if_possible(std::FILE* out, fmt::format_string<Args...> text, Args&&... args) {
  std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), out);
}

}  // namespace lab
