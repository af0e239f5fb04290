// System calls around sockets.
#include "common/comm/store/tcp_store_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

#include "common/error.h"

namespace lab::tcp_store {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// Asks again until `deadline` if the name server does not answer, as while a network starts.
Addresses resolve(const std::string& address, uint16_t port, Clock::time_point deadline = {}) {
  constexpr std::chrono::milliseconds kPause{250};
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const auto ask = [&] {
    return getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  };
  int failure = ask();
  for (; failure == EAI_AGAIN && Clock::now() + kPause < deadline; failure = ask())
    std::this_thread::sleep_for(kPause);
  require(failure == 0, "the address {} is unknown: {}", address, gai_strerror(failure));
  return {found, freeaddrinfo};
}

Socket make_socket(const addrinfo& address) {
  return Socket(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);
}

/// Whether a connection to a port where nobody listened has connected to itself: the kernel chose
/// the same port as its near end.
bool connected_to_itself(const Socket& socket) {
  sockaddr_storage near = {};
  sockaddr_storage far = {};
  socklen_t near_size = sizeof near;
  socklen_t far_size = sizeof far;
  return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&near), &near_size) == 0 &&
         getpeername(socket.get(), reinterpret_cast<sockaddr*>(&far), &far_size) == 0 &&
         near_size == far_size && std::memcmp(&near, &far, near_size) == 0;
}

/// 0, or errno.
int finish_connecting(const Socket& socket, Clock::time_point deadline) {
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  if (error == 0 && connected_to_itself(socket)) return ECONNREFUSED;
  return error;
}

}  // namespace

std::string place(const std::string& address, uint16_t port) {
  const bool brackets = address.find(':') != std::string::npos;
  return brackets ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

Socket listen_at(const std::string& address, uint16_t port) {
  const Addresses addresses = resolve(address, port);
  int error = 0;
  for (const addrinfo* next = addresses.get(); next != nullptr; next = next->ai_next) {
    Socket socket = make_socket(*next);
    // A port whose last connections are still being closed may be used again. One where a process
    // listens may not; either bind or listen reports it.
    if (socket) set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket && bind(socket.get(), next->ai_addr, next->ai_addrlen) == 0 &&
        listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    error = errno;
    require(error != EADDRINUSE,
            "port {} of {} is in use: another job? choose another with --master-port", port,
            address);
  }
  require(error != EACCES, "port {} of {} is reserved: choose another with --master-port", port,
          address);
  require(error != EADDRNOTAVAIL,
          "cannot listen at {}: this is not an address of this machine; rank 0 runs where "
          "--master-addr says",
          place(address, port));
  fail("cannot listen at {}: {}", place(address, port), std::generic_category().message(error));
}

uint16_t own_port(const Socket& socket) {
  sockaddr_storage own = {};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXSERV> text{};
  auto* address = reinterpret_cast<sockaddr*>(&own);
  require(getsockname(socket.get(), address, &size) == 0 &&
              getnameinfo(address, size, nullptr, 0, text.data(), text.size(), NI_NUMERICSERV) == 0,
          "a socket does not know its port");
  return static_cast<uint16_t>(std::stoi(text.data()));
}

Socket connect_to(const std::string& address, uint16_t port, Clock::time_point deadline,
                  int& error) {
  constexpr std::chrono::seconds kPatience{3};  // the next address may answer
  const Addresses addresses = resolve(address, port, deadline);
  for (const addrinfo* next = addresses.get(); next != nullptr; next = next->ai_next) {
    Socket socket = make_socket(*next);
    error = 0;
    if (!socket || connect(socket.get(), next->ai_addr, next->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS || error == EINTR || error == 0)
      error = finish_connecting(socket, std::min(deadline, Clock::now() + kPatience));
    if (error == 0) {
      prepare(socket);
      return socket;
    }
  }
  return Socket();
}

void prepare(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

void limit_unacknowledged(const Socket& socket, double seconds) {
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(1000 * seconds));
}

bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  constexpr int64_t kLongest = 60'000;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int64_t wait = std::clamp<int64_t>(left.count(), 0, kLongest);
    pollfd descriptor{socket.get(), events, 0};
    const int ready = poll(&descriptor, 1, static_cast<int>(wait));
    if (ready > 0) return true;
    require(ready == 0 || errno == EINTR, "cannot wait for a socket: {}",
            std::generic_category().message(errno));
    if (Clock::now() >= deadline) return false;
  }
}

int64_t send_some(const Socket& socket, std::string_view bytes) {
  while (true) {
    const ssize_t count = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) return count;
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return -1;
  }
}

int64_t receive_some(const Socket& socket, std::string& buffer) {
  std::array<char, 64 * 1024> chunk;
  while (true) {
    const ssize_t count = recv(socket.get(), chunk.data(), chunk.size(), 0);
    if (count > 0) buffer.append(chunk.data(), static_cast<size_t>(count));
    if (count > 0) return count;
    if (count == 0) return -1;
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return -1;
  }
}

}  // namespace lab::tcp_store
