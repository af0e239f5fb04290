// One thread, which never waits for a particular client.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <random>
#include <thread>
#include <vector>

#include "common/comm/store/memory_store.h"
#include "common/comm/store/tcp_store.h"
#include "common/comm/store/tcp_store_connection.h"
#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"
#include "common/error.h"

namespace lab {
namespace {

using tcp_store::Clock;
using tcp_store::Connection;
using tcp_store::Socket;

uint64_t random_identity() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

/// Makes the server's poll return.
class Bell {
 public:
  Bell() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    require(static_cast<bool>(event_), "cannot make an eventfd: too many open files?");
  }
  int descriptor() const { return event_.get(); }
  void ring() { eventfd_write(event_.get(), 1); }
  void silence() {
    eventfd_t count = 0;
    eventfd_read(event_.get(), &count);
  }

 private:
  Socket event_;
};

}  // namespace

struct TcpStoreServer::Impl {
  Impl(const std::string& address, uint16_t port, const TcpStoreLimits& the_limits)
      : limits(the_limits), listener(tcp_store::listen_at(address, port)) {}

  void run() {
    while (!stopping) {
      wait_for_events();
      if (descriptors[0].revents != 0) bell.silence();
      for (size_t i = 0; i < connections.size(); ++i)
        if (descriptors[i + 2].revents != 0)
          attempt(i, [&](Connection& connection) { connection.serve(values); });
      for (size_t i = 0; i < connections.size(); ++i)
        attempt(i, [&](Connection& connection) { connection.look_again(values); });
      remove_gone_and_slow();
      if (descriptors[1].revents != 0) accept_all();
    }
  }

  /// Afterwards `descriptors` has the bell, the listener, and every connection.
  void wait_for_events() {
    auto until = Clock::time_point::max();
    descriptors.assign({{bell.descriptor(), POLLIN, 0}, {listener.get(), POLLIN, 0}});
    if (accept_again > Clock::now()) {
      descriptors[1].fd = -1;
      until = accept_again;
    }
    for (const auto& connection : connections) {
      descriptors.push_back({connection->socket().get(), connection->events(), 0});
      until = std::min(until, connection->deadline());
    }
    int wait = -1;
    if (until != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      wait = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
    }
    if (poll(descriptors.data(), descriptors.size(), wait) < 0)
      for (pollfd& descriptor : descriptors) descriptor.revents = 0;
  }

  /// Whatever goes wrong with one client does not affect the others.
  template <typename Action>
  void attempt(size_t index, const Action& action) {
    if (!connections[index]) return;
    try {
      action(*connections[index]);
    } catch (const std::exception&) {
      connections[index].reset();
    }
  }

  void accept_all() {
    constexpr int kAtOnce = 64;  // then the others have their turn
    for (int i = 0; i < kAtOnce; ++i) {
      Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const int error = errno;
      if (socket) {
        if (connections.size() >= limits.connections) continue;
        tcp_store::prepare(socket);
        connections.push_back(std::make_unique<Connection>(std::move(socket), greeting, limits));
      } else if (error == EAGAIN) {
        return;
      } else if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        accept_again = Clock::now() + std::chrono::milliseconds(100);  // others may close some
        return;
      }
    }
  }

  void remove_gone_and_slow() {
    const auto now = Clock::now();
    std::erase_if(connections, [&](const auto& connection) {
      return !connection || connection->deadline() <= now;
    });
  }

  TcpStoreLimits limits;
  Bell bell;
  MemoryStore values{MemoryStore::kDefaultLimit, [this] { bell.ring(); }};  // clients wait for it
  Socket listener;
  std::string greeting = tcp_store::server_greeting(random_identity());
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<pollfd> descriptors;
  Clock::time_point accept_again = Clock::time_point::min();
  std::atomic<bool> stopping = false;
  std::thread thread;
};

TcpStoreServer::TcpStoreServer(const std::string& address, uint16_t port,
                               const TcpStoreLimits& limits)
    : impl_(std::make_unique<Impl>(address, port, limits)) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

TcpStoreServer::~TcpStoreServer() {
  impl_->stopping = true;
  impl_->bell.ring();
  impl_->thread.join();
}

uint16_t TcpStoreServer::port() const { return tcp_store::own_port(impl_->listener); }

Store& TcpStoreServer::store() { return impl_->values; }

}  // namespace lab
