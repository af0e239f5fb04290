// Texts and numbers formatted for the report.
#pragma once

#include <cstdint>
#include <string>

namespace lab {

/// "812 B", "1.50 kB", "34.2 MB": three digits, powers of ten.
std::string format_bytes(double bytes);

/// "0.8 s", "48 s", "6 min 40 s", "3 h 5 min".
std::string duration_in_words(double seconds);

/// "12,345"; for numbers of at least 0.
std::string format_whole(double value);

}  // namespace lab
