// How the report looks.
#pragma once

#include <string_view>

namespace lab {

/// Its style sheet. Light, or dark where the reader's system is; always light on paper.
std::string_view report_style();

}  // namespace lab
