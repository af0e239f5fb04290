// A connection between a TcpStore and its server, as either end sees it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"

namespace lab::tcp_store {

/// kOver: the other side has closed the connection. kLate: the deadline has passed.
enum class Result { kDone, kOver, kLate };

/// Sends and receives whole messages, and waits for them.
class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  Result send(std::string_view bytes, Clock::time_point deadline) const;
  /// The next `size` bytes; on failure, those that have arrived.
  Result receive(size_t size, std::string& bytes, Clock::time_point deadline);
  /// The next message. Throws Error if the bytes that arrive are not a message.
  Result receive(Message& message, Clock::time_point deadline);
  /// Waits until there is something to receive.
  Result wait_for_input(Clock::time_point deadline);

  /// Whether an idle connection can be used: the other side has neither closed it nor sent
  /// something that nobody asked for. Does not wait.
  bool is_open() const;
  /// A thread that is waiting for input continues as if the other side had closed the connection;
  /// one that is sending may finish.
  void end_input() const;
  /// Ends it for both sides.
  void end() const;

 private:
  Result receive_more(Clock::time_point deadline);

  Socket socket_;
  std::string input_;  // received, but not taken yet
};

}  // namespace lab::tcp_store
