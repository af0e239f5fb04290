// Any text in HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace lab {

/// Any bytes as the text of an element or a quoted attribute: markup is escaped; bytes that are not
/// valid UTF-8 become U+FFFD, as do characters that XML does not allow.
std::string html_escaped(std::string_view text);

}  // namespace lab
