// Whether output may be coloured.
#pragma once

namespace lab {

/// True if `descriptor` is a terminal, or colour is requested anyway (CLICOLOR_FORCE, which the
/// launcher sets for its ranks when its own output is a terminal); never with NO_COLOR
/// (https://no-color.org, https://bixense.com/clicolors).
bool wants_color(int descriptor);

}  // namespace lab
