// Numbers of bytes formatted for people.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>

namespace lab::cuda {

/// "512 bytes", "3.0 MiB".
inline std::string byte_count(size_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace lab::cuda
