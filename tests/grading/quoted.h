// Text that comes from a student's program, safe to show.
#pragma once

#include <string>
#include <string_view>

namespace lab::grading {

/// `text` with '?' for control characters and `margin` before every line but the first, so that
/// nobody takes a line of it for the verdict's own words. One line feed at its end is left out.
std::string quoted(std::string_view text, std::string_view margin);

}  // namespace lab::grading
