// MemoryStore: a store for the threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "common/comm/store/store.h"

namespace lab {

class MemoryStore final : public Store {
 public:
  static constexpr size_t kDefaultLimit = 128 * kMaxStoreValue;
  /// `limit`: of all keys and values together, in bytes; the default is far more than a job needs.
  /// Beyond it, `set` and `add` throw Error.
  explicit MemoryStore(size_t limit = kDefaultLimit) : limit_(limit) {}

  void set(const std::string& key, const std::string& value) override;
  /// Empty also when the store is closed.
  std::optional<std::string> get_within(const std::string& key,
                                        std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;

  /// From now on no call waits for a key, and those that are waiting return.
  void close();

 private:
  void store(const std::string& key, const std::string& value);  // with the lock held

  const size_t limit_;
  size_t size_ = 0;
  bool is_closed_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace lab
