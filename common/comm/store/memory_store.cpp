// A map, and one condition variable for all waiting threads.
#include "common/comm/store/memory_store.h"

#include "common/comm/store/store_rules.h"
#include "common/error.h"

namespace lab {

void MemoryStore::store(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  const size_t before = found != values_.end() ? key.size() + found->second.size() : 0;
  const size_t after = size_ - before + key.size() + value.size();
  require(after <= limit_, "the store is full: it takes {} bytes", limit_);
  values_[key] = value;
  size_ = after;
}

void MemoryStore::set(const std::string& key, const std::string& value) {
  store_rules::check_key(key);
  store_rules::check_value(key, value);
  {
    const std::lock_guard lock(mutex_);
    store(key, value);
  }
  changed_.notify_all();
}

std::optional<std::string> MemoryStore::get_within(const std::string& key,
                                                   std::chrono::milliseconds timeout) {
  store_rules::check_key(key);
  const auto deadline = store_rules::deadline_after(timeout);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return is_closed_ || values_.contains(key); });
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

int64_t MemoryStore::add(const std::string& key, int64_t amount) {
  store_rules::check_key(key);
  int64_t sum = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    const bool exists = found != values_.end();
    sum = store_rules::counter_after(key, exists ? std::optional(found->second) : std::nullopt,
                                     amount);
    store(key, std::to_string(sum));
  }
  changed_.notify_all();
  return sum;
}

void MemoryStore::close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace lab
