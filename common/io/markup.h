// Any text in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace lab {

/// Any bytes as the text of an element or a quoted attribute: markup is escaped; bytes that are no
/// UTF-8 become U+FFFD, and so do characters that XML does not know.
std::string html_escaped(std::string_view text);

}  // namespace lab
