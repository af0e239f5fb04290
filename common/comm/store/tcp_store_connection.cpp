#include "common/comm/store/tcp_store_connection.h"

#include <poll.h>
#include <sys/socket.h>

namespace lab::tcp_store {

Result Connection::send(std::string_view bytes, Clock::time_point deadline) const {
  while (!bytes.empty()) {
    const int64_t sent = send_some(socket_, bytes);
    if (sent < 0) return Result::kOver;
    bytes.remove_prefix(static_cast<size_t>(sent));
    if (!bytes.empty() && !wait_for(socket_, POLLOUT, deadline)) return Result::kLate;
  }
  return Result::kDone;
}

Result Connection::receive(size_t size, std::string& bytes, Clock::time_point deadline) {
  Result result = Result::kDone;
  while (result == Result::kDone && input_.size() < size) result = receive_more(deadline);
  bytes = input_.substr(0, size);
  input_.erase(0, size);
  return result;
}

Result Connection::receive(Message& message, Clock::time_point deadline) {
  while (true) {
    if (auto received = take_message(input_)) {
      message = *std::move(received);
      return Result::kDone;
    }
    if (const Result result = receive_more(deadline); result != Result::kDone) return result;
  }
}

Result Connection::wait_for_input(Clock::time_point deadline) {
  return input_.empty() ? receive_more(deadline) : Result::kDone;
}

bool Connection::is_open() const { return !wait_for(socket_, POLLIN, Clock::now()); }

void Connection::end_input() const { shutdown(socket_.get(), SHUT_RD); }

void Connection::end() const { shutdown(socket_.get(), SHUT_RDWR); }

Result Connection::receive_more(Clock::time_point deadline) {
  while (true) {
    const int64_t received = receive_some(socket_, input_);
    if (received != 0) return received > 0 ? Result::kDone : Result::kOver;
    if (!wait_for(socket_, POLLIN, deadline)) return Result::kLate;
  }
}

}  // namespace lab::tcp_store
