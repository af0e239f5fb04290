// Numbers formatted for people.
#pragma once

#include <cstdint>
#include <string>

namespace lab {

/// "4,812"; not for negative numbers.
std::string format_count(int64_t value);

}  // namespace lab
