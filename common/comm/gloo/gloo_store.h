// GlooStore: our store with the interface that Gloo expects, for one group's rendezvous.
#pragma once

#include <gloo/rendezvous/store.h>

#include <string>
#include <vector>

#include "common/comm/store/store.h"

namespace lab {

/// Keys get a prefix, so that those of different groups do not collide.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(lab::Store& store, std::string prefix, std::chrono::milliseconds timeout)
      : store_(store), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  // Gloo passes its timeout for a connection, which is ignored: a rank may arrive much later.
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  lab::Store& store_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
};

}  // namespace lab
