// One client of the TcpStoreServer.
#pragma once

#include <optional>
#include <string>

#include "common/comm/store/memory_store.h"
#include "common/comm/store/tcp_store.h"
#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"

namespace lab::tcp_store {

/// Does what can be done without waiting, and keeps the rest: an incomplete request, a reply that
/// the client has not read yet, a `get` whose key is not set. Holds at most one request and one
/// reply: while a reply waits, nothing is read. Methods throw Error if the client must be
/// disconnected.
class Connection {
 public:
  Connection(Socket socket, const std::string& greeting, const TcpStoreLimits& limits);

  const Socket& socket() const { return socket_; }
  /// The events to wait for, as for poll.
  short events() const;
  /// When to disconnect it unless it makes progress.
  Clock::time_point deadline() const { return deadline_; }

  /// Call it when those events have occurred.
  void serve(MemoryStore& values);
  /// Call it when values may have changed: answers the waiting `get`, if possible.
  void look_again(MemoryStore& values);

 private:
  void greet();
  void answer(const Message& request, MemoryStore& values);
  void reply(const Message& request, Kind kind, std::string value);
  void flush();
  void set_deadline();

  Socket socket_;
  std::string greeting_;
  TcpStoreLimits limits_;
  bool greeted_ = false;
  std::string input_;
  std::string output_;
  std::optional<Message> waiting_;
  Clock::time_point deadline_;
  bool got_on_ = false;  // a message has been read or written completely
};

}  // namespace lab::tcp_store
