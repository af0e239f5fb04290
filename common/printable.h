// Text from elsewhere, safe to show.
#pragma once

#include <string>
#include <string_view>

namespace lab {

/// Text from a file or from another process for an error message: what is not printable ASCII is
/// escaped as \x0a, so that it cannot pose as a message of its own, and the text is cut after
/// 60 bytes.
std::string printable(std::string_view text);

}  // namespace lab
