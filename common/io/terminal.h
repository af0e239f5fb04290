// Whether output may be coloured.
#pragma once

namespace lab {

/// True if `descriptor` is a terminal, or the user asks for colour all the same (CLICOLOR_FORCE, as
/// the launcher does for its ranks when it writes to a terminal itself); never with NO_COLOR
/// (https://no-color.org, https://bixense.com/clicolors).
bool wants_color(int descriptor);

}  // namespace lab
