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

/// The terminal's size; 24 x 80 if it reports none or there is no terminal.
TerminalSize terminal_size(int descriptor);

/// Prints even if nobody reads the output any more, as on a closed terminal, where fmt::print would
/// throw.
template <typename... Args>
void print_if_possible(std::FILE* out, fmt::format_string<Args...> text, Args&&... args) {
  std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), out);
}

}  // namespace lab
