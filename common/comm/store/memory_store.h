// MemoryStore: a store for the threads of one process.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "common/comm/store/store.h"

namespace lab {

class MemoryStore final : public Store {
 public:
  static constexpr size_t kDefaultLimit = 128 * kMaxStoreValue;
  /// `limit`: of all keys and values together, in bytes; the default is far more than a job needs.
  /// Beyond it, `set` and `add` throw Error. `on_change` is called after each of them.
  explicit MemoryStore(size_t limit = kDefaultLimit, std::function<void()> on_change = {})
      : limit_(limit), on_change_(std::move(on_change)) {}

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  void store(const std::string& key, const std::string& value);  // with the lock held

  void tell();

  const size_t limit_;
  const std::function<void()> on_change_;
  size_t size_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace lab
