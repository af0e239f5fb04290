// The style of the report.
#pragma once

#include <string_view>

namespace lab {

/// Its style sheet. Light, or dark if the reader's system is; always light on paper.
std::string_view report_style();

}  // namespace lab
