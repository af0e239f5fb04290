// Error messages of the stores, and arithmetic on their values.
#include "common/comm/store/store_rules.h"

#include <algorithm>
#include <utility>

#include "common/comm/store/store.h"
#include "common/error.h"
#include "common/parse_number.h"
#include "common/printable.h"

namespace lab {
namespace {

std::string quoted(const std::string& key) { return fmt::format("\"{}\"", printable(key)); }

}  // namespace

std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
  if (auto value = get_within(key, timeout)) return *std::move(value);
  throw StoreTimeout(fmt::format("nobody set the key {} within {:g} s", quoted(key),
                                 std::chrono::duration<double>(timeout).count()));
}

namespace store_rules {

void check_key(const std::string& key) {
  require(key.size() <= kMaxStoreKey, "the key {} has {} bytes: a store takes {} at most",
          quoted(key), key.size(), kMaxStoreKey);
}

void check_value(const std::string& key, const std::string& value) {
  require(value.size() <= kMaxStoreValue,
          "the value of key {} has {} bytes: a store takes {} at most", quoted(key), value.size(),
          kMaxStoreValue);
}

int64_t counter_after(const std::string& key, const std::optional<std::string>& text,
                      int64_t amount) {
  const std::optional<int64_t> count = text ? parse_number<int64_t>(*text) : 0;
  require(count.has_value(), "cannot add to the key {}: its value is not a number", quoted(key));
  int64_t sum = 0;
  require(!__builtin_add_overflow(*count, amount, &sum), "the counter {} has no room for {} more",
          quoted(key), amount);
  return sum;
}

std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kYear = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() + std::clamp(timeout, {}, kYear);
}

}  // namespace store_rules
}  // namespace lab
