// What a terminal can show.
#pragma once

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

}  // namespace lab
