// One client, as the TcpStoreServer sees it.
#pragma once

#include <optional>
#include <string>

#include "common/comm/store/memory_store.h"
#include "common/comm/store/tcp_store.h"
#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"

namespace lab::tcp_store {

/// Does what can be done without waiting, and keeps the rest: an incomplete request, a reply that
/// the client has not taken yet, a `get` whose key is not set. Holds one request and one reply at
/// most: while a reply waits, nothing is read. Methods throw Error when the client is to be
/// disconnected.
class Connection {
 public:
  Connection(Socket socket, const std::string& greeting, const TcpStoreLimits& limits);

  const Socket& socket() const { return socket_; }
  /// What to wait for, as poll has it.
  short events() const;
  /// When it is to be disconnected unless it gets on.
  Clock::time_point deadline() const { return deadline_; }

  /// To be called when its events have come.
  void serve(MemoryStore& values);
  /// To be called when values may have changed: answers the `get` that waits, if it can.
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
  bool got_on_ = false;  // a message has been read or written to its end
};

}  // namespace lab::tcp_store
