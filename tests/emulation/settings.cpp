// See settings.h and order.h.
#include "settings.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>

#include "lock.h"
#include "order.h"

namespace lab::emulation {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Settings from_environment() {
  Settings result;
  const std::string driver = variable("LAB_EMULATED_DRIVER");
  if (driver == "missing") result.driver = Driver::kMissing;
  if (driver == "old") result.driver = Driver::kTooOld;
  const std::string gpus = variable("LAB_EMULATED_GPUS");
  if (!gpus.empty()) result.device_count = std::stoi(gpus);
  const std::string bytes = variable("LAB_EMULATED_MEMORY");
  if (!bytes.empty()) result.total_memory = std::stoull(bytes);
  return result;
}

Settings& settings() {
  static Settings result = from_environment();
  return result;
}

Statistics& counts() {
  static Statistics result;
  return result;
}

void fill_order(std::vector<unsigned>& order, unsigned count, uint64_t salt) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0U);
  if (settings().order == Order::kDescending) std::reverse(order.begin(), order.end());
  if (settings().order == Order::kShuffled) {
    std::mt19937_64 random(settings().seed * 0x9e3779b97f4a7c15ULL + salt);
    std::shuffle(order.begin(), order.end(), random);
  }
}

void set_order(Order order, uint64_t seed) {
  const auto lock = lock_runtime();
  settings().order = order;
  settings().seed = seed;
}

void set_block_step(unsigned step) { settings().block_step = step; }
void set_driver(Driver driver) { settings().driver = driver; }
void set_device_count(int count) { settings().device_count = count; }
void set_total_memory(size_t bytes) { settings().total_memory = bytes; }
void set_compute_capability(int major, int minor) {
  settings().major = major;
  settings().minor = minor;
}
void set_has_code(bool has_code) { settings().has_code = has_code; }
void set_records_products(bool records) { settings().records_products = records; }
Statistics statistics() { return counts(); }

}  // namespace lab::emulation
