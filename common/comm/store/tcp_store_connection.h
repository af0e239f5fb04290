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

/// Sends and receives what is whole, and waits for it.
class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  Result send(std::string_view bytes, Clock::time_point deadline) const;
  /// The next `size` bytes; if it fails, what has come of them.
  Result receive(size_t size, std::string& bytes, Clock::time_point deadline);
  /// The next message. Throws Error if what arrives is none.
  Result receive(Message& message, Clock::time_point deadline);
  /// Waits until there is something to receive.
  Result wait_for_input(Clock::time_point deadline);

  /// Whether an idle connection can be used: the other side has neither closed it nor sent
  /// something that nobody asked for. Does not wait.
  bool is_open() const;
  /// A thread that waits for input goes on as if the other side had closed it. One that sends may
  /// finish.
  void end_input() const;
  /// Ends it for both sides.
  void end() const;

 private:
  Result receive_more(Clock::time_point deadline);

  Socket socket_;
  std::string input_;  // received, but not taken yet
};

}  // namespace lab::tcp_store
