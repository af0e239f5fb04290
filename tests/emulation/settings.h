// What emulation.h sets.
#pragma once

#include "emulation.h"

namespace lab::emulation {

struct Settings {
  Order order = Order::kAscending;
  uint64_t seed = 0;
  Driver driver = Driver::kPresent;
  int device_count = 1;
  size_t total_memory = size_t{4} << 30;
};
Settings& settings();

/// Counts, which emulation.h shows.
Statistics& counts();

}  // namespace lab::emulation
