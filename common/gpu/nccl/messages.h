// Messages: all messages of one rank within a group, and the thread that drives them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/comm/store/store.h"
#include "common/comm/transport.h"
#include "common/gpu/nccl/connections.h"
#include "common/gpu/nccl/message_link.h"
#include "common/gpu/nccl/patience.h"

namespace lab::nccl {

/// A message is launched on the GPU once the other side has connected and earlier ones have been
/// launched. That takes calls from the host, even while the program is busy with something else,
/// such as a barrier over another transport. So as long as there are such messages, a thread makes
/// these calls; afterwards it sleeps.
///
/// A failure ends all connections of the group: later calls throw Error with the first reason.
/// Methods may be called from several threads.
class Messages : public std::enable_shared_from_this<Messages> {
 public:
  Messages(Store& store, std::shared_ptr<Connections> connections, std::string group, int rank);
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  struct Post {
    void* data = nullptr;
    size_t bytes = 0;
    int peer = 0;
    uint64_t slot = 0;
    bool send = false;
  };
  std::unique_ptr<Transfer> post(const Post& what);

  /// Throws Error if something has failed earlier.
  void require_whole();
  /// Ends all connections of the group abruptly. Not during a collective.
  void break_off(const std::string& why) noexcept;
  /// Ends them in an orderly way if all pending operations finish while `patience` lasts.
  void close(const Patience& patience) noexcept;

 private:
  class PostedMessage;
  bool finished(MessageLink& link, const Message& message);
  MessageLink& link_for(const Post& what);
  void progress_all();
  void keep_going(const std::stop_token& stop);
  bool all_idle() noexcept;
  /// Calls `body` with the lock held; if it throws an Error, everything is broken off.
  template <typename Body>
  auto guarded(const Body& body);
  void throw_if_broken();
  void note_failure(const std::string& why) noexcept;
  void drop_all(const std::string& why) noexcept;

  Store& store_;
  const std::shared_ptr<Connections> connections_;
  const std::string group_;
  const int rank_;
  std::mutex mutex_;
  std::string broken_;                                 // why; empty while all is well
  std::map<std::pair<int, bool>, MessageLink> links_;  // by peer and whether this rank sends
  bool waiting_ = false;                               // messages that were not launched yet
  std::condition_variable_any changed_;
  std::jthread helper_;
};

}  // namespace lab::nccl
