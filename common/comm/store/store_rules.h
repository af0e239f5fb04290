// What all stores have in common: limits, counters, deadlines, error messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lab::store_rules {

/// Throw Error if the key, or its value, is too long.
void check_key(const std::string& key);
void check_value(const std::string& key, const std::string& value);

/// What a counter holds after `amount` is added to its text; absent counts as 0. Throws Error if
/// the text is not a number, or the sum too large.
int64_t counter_after(const std::string& key, const std::optional<std::string>& text,
                      int64_t amount);

/// Now plus `timeout`, however large or negative that is.
std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout);

}  // namespace lab::store_rules
