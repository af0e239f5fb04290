// Store: a small key-value table that all ranks of a job share, to find each other before they can
// exchange messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/error.h"

namespace lab {

/// Nobody set the key in time. The message names the key and the time.
class StoreTimeout : public Error {
 public:
  using Error::Error;
};

/// In bytes; the same for all stores, so that code that works with one works with the others.
inline constexpr size_t kMaxStoreKey = 1024;
inline constexpr size_t kMaxStoreValue = 1024 * 1024;

/// Keys and values are bytes. Several threads may call it. All calls throw Error if the store
/// cannot be reached or a key or value is too long; `get` also when its time is up.
class Store {
 public:
  virtual ~Store() = default;

  /// Sets a key, or replaces its value.
  virtual void set(const std::string& key, const std::string& value) = 0;

  /// The value of the key, as soon as somebody has set it; empty after `timeout`. A key that is set
  /// already is returned even if `timeout` is 0.
  virtual std::optional<std::string> get_within(const std::string& key,
                                                std::chrono::milliseconds timeout) = 0;

  /// The same; throws StoreTimeout when the time is up.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);

  /// The value of the key if it is set.
  std::optional<std::string> try_get(const std::string& key) { return get_within(key, {}); }

  /// Adds to a counter, which starts at 0, and returns its new value; no two callers get the same.
  /// `try_get` reads it as decimal text. Throws Error if the key holds something else.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

}  // namespace lab
