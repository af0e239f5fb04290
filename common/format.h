// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lab {

/// "4,812"; not for negative numbers.
std::string format_count(int64_t value);

/// "1 rank", "3 ranks", "2 batches"; only for nouns whose plural ends with -s or -es.
std::string counted(int64_t count, std::string_view noun);

/// "812 B", "1.50 kB", "34.2 MB": three digits, powers of ten.
std::string format_bytes(double bytes);

/// "0:07", "1:42", "3:05:00".
std::string format_duration(double seconds);

/// "0.8 s", "48 s", "6 min 40 s", "3 h 5 min".
std::string duration_in_words(double seconds);

}  // namespace lab
