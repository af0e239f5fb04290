// TcpPeer: the other end of a TcpStore or its server in tests, that sends and reads any bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"

namespace lab {

class TcpPeer {
 public:
  /// Connects to a port of 127.0.0.1.
  explicit TcpPeer(uint16_t port) {
    int error = 0;
    socket_ = tcp_store::connect_to("127.0.0.1", port, deadline(), error);
    if (!socket_) throw std::runtime_error("cannot connect");
  }
  /// Takes a connection from a listener.
  explicit TcpPeer(const tcp_store::Socket& listener) {
    tcp_store::wait_for(listener, POLLIN, deadline());
    socket_ = tcp_store::Socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
    if (!socket_) throw std::runtime_error("nobody connected");
  }

  /// False if the other side has closed the connection, or does not take it in time.
  bool send(std::string bytes) {
    while (!bytes.empty()) {
      if (!tcp_store::wait_for(socket_, POLLOUT, deadline())) return false;
      const int64_t sent = tcp_store::send_some(socket_, bytes);
      if (sent < 0) return false;
      bytes.erase(0, static_cast<size_t>(sent));
    }
    return true;
  }

  /// True once something is there, or the connection is closed.
  bool wait_until_readable() { return tcp_store::wait_for(socket_, POLLIN, deadline()); }

  /// Waits for that many bytes; returns fewer if the connection ends before.
  std::string receive(size_t size) {
    while (input_.size() < size && tcp_store::wait_for(socket_, POLLIN, deadline()))
      if (tcp_store::receive_some(socket_, input_) < 0) break;
    const std::string bytes = input_.substr(0, size);
    input_.erase(0, size);
    return bytes;
  }

  /// Greets a server as a client does. False if it does not greet back.
  bool greet() {
    constexpr size_t kSize = tcp_store::kGreetingSize + tcp_store::kIdentitySize;
    return send(tcp_store::greeting(tcp_store::kClientMagic)) && receive(kSize).size() == kSize;
  }

  /// Waits until the other side closes the connection; it may have sent something before.
  bool is_disconnected() {
    while (tcp_store::wait_for(socket_, POLLIN, deadline()))
      if (tcp_store::receive_some(socket_, input_) < 0) return true;
    return false;
  }

  /// Closes the connection as the kernel does for a process that was killed with input unread.
  void reset() {
    const linger abort{1, 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    socket_ = tcp_store::Socket();
  }

 private:
  static tcp_store::Clock::time_point deadline() {
    return tcp_store::Clock::now() + std::chrono::seconds(20);
  }

  tcp_store::Socket socket_;
  std::string input_;
};

/// A port of 127.0.0.1 where nobody listens, kept for its owner: a server may still listen there.
class UnusedPort {
 public:
  UnusedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot bind");
  }
  uint16_t number() const { return tcp_store::own_port(socket_); }

 private:
  tcp_store::Socket socket_;
};

}  // namespace lab
