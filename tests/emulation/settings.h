// What emulation.h sets.
#pragma once

#include "device_limits.h"
#include "emulation.h"

namespace lab::emulation {

struct Settings {
  Order order = Order::kAscending;
  uint64_t seed = 0;
  unsigned block_step = 1;
  Driver driver = Driver::kPresent;
  int device_count = 1;
  size_t total_memory = size_t{4} << 30;
  int major = kMajor;
  int minor = kMinor;
  bool has_code = true;
  bool records_products = true;
};
Settings& settings();

/// What they are at first; for programs that nobody can call set_driver in:
///   LAB_EMULATED_DRIVER=missing|old   LAB_EMULATED_GPUS=N   LAB_EMULATED_MEMORY=BYTES
Settings from_environment();

/// Counts, which emulation.h shows.
Statistics& counts();

}  // namespace lab::emulation
