// MemoryStore: a store for the threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "common/comm/store/store.h"

namespace lab {

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace lab
