// One thread waits for clients; each client has one that answers it.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <list>
#include <random>
#include <thread>
#include <utility>

#include "common/comm/store/memory_store.h"
#include "common/comm/store/tcp_store.h"
#include "common/comm/store/tcp_store_connection.h"
#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"
#include "common/error.h"
#include "common/parse_number.h"

namespace lab {
namespace {

using tcp_store::Clock;
using tcp_store::Connection;
using tcp_store::Kind;
using tcp_store::Message;
using tcp_store::Result;
using tcp_store::Socket;

int64_t number_in(const Message& request) {
  const auto number = parse_number<int64_t>(request.value);
  require(number.has_value(), "not a number");
  return *number;
}

uint64_t random_identity() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

struct TcpStoreServer::Impl {
  struct Client {
    Client(Impl& server, Socket socket)
        : connection(std::move(socket)), thread([this, &server] { server.attend(*this); }) {}

    Connection connection;
    std::atomic<bool> has_left = false;
    std::jthread thread;  // the last member: joined before the others end
  };

  Impl(const std::string& address, uint16_t port, const TcpStoreLimits& the_limits)
      : limits(the_limits), listener(tcp_store::listen_at(address, port)) {}

  void accept_clients() {
    while (!is_ending) {
      try {
        tcp_store::wait_for(listener, POLLIN, Clock::time_point::max());
        clients.remove_if([](const Client& client) { return client.has_left.load(); });
        accept_one();
      } catch (const std::exception&) {
        // Too many open files or threads, most likely. Some may end.
        if (!is_ending) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    }
  }

  void accept_one() {
    Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    require(static_cast<bool>(socket), "cannot accept a client");
    if (clients.size() >= limits.connections) return;
    tcp_store::prepare(socket);
    clients.emplace_back(*this, std::move(socket));
  }

  /// Whatever goes wrong with one client does not affect the others.
  void attend(Client& client) {
    try {
      serve(client.connection);
    } catch (const std::exception&) {  // it has sent what is no request
    }
    client.connection.end();
    client.has_left = true;
  }

  /// Until the client leaves or breaks the protocol.
  void serve(Connection& client) {
    std::string hello;
    auto deadline = Clock::now() + limits.greeting;
    if (client.receive(tcp_store::kGreetingSize, hello, deadline) != Result::kDone) return;
    if (!hello.starts_with(tcp_store::kClientMagic)) return;
    if (client.send(greeting, deadline) != Result::kDone) return;
    if (tcp_store::greeting_version(hello) != tcp_store::kVersion) return;
    while (client.wait_for_input(Clock::time_point::max()) == Result::kDone) {
      Message request;
      if (client.receive(request, Clock::now() + limits.message) != Result::kDone) return;
      const Message reply = answer(request);
      if (is_ending && reply.kind == Kind::kAbsent) return;  // it was not waited for long enough
      if (client.send(encode(reply), Clock::now() + limits.message) != Result::kDone) return;
    }
  }

  /// Throws Error if it is no request.
  Message answer(const Message& request) {
    if (request.kind == Kind::kGet) {
      const std::chrono::milliseconds wait(number_in(request));
      auto value = values.get_within(request.key, std::min(wait, tcp_store::kLongestWait));
      if (!value) return {.kind = Kind::kAbsent};
      return {.value = *std::move(value)};
    }
    const int64_t amount = request.kind == Kind::kAdd ? number_in(request) : 0;
    require(request.kind == Kind::kSet || request.kind == Kind::kAdd, "a reply from a client");
    try {
      if (request.kind == Kind::kAdd)
        return {.value = std::to_string(values.add(request.key, amount))};
      values.set(request.key, request.value);
      return {};
    } catch (const Error& error) {
      return {.kind = Kind::kRefused, .value = error.what()};
    }
  }

  TcpStoreLimits limits;
  MemoryStore values;
  Socket listener;
  std::string greeting =
      tcp_store::greeting(tcp_store::kServerMagic) + tcp_store::encode_identity(random_identity());
  std::list<Client> clients;  // of the thread that accepts them, until that has ended
  std::atomic<bool> is_ending = false;
  std::thread thread;
};

TcpStoreServer::TcpStoreServer(const std::string& address, uint16_t port,
                               const TcpStoreLimits& limits)
    : impl_(std::make_unique<Impl>(address, port, limits)) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->accept_clients(); });
}

TcpStoreServer::~TcpStoreServer() {
  impl_->is_ending = true;
  shutdown(impl_->listener.get(), SHUT_RDWR);
  impl_->thread.join();
  for (const Impl::Client& client : impl_->clients) client.connection.end_input();
  impl_->values.close();
  impl_->clients.clear();
}

uint16_t TcpStoreServer::port() const { return tcp_store::own_port(impl_->listener); }

Store& TcpStoreServer::store() { return impl_->values; }

}  // namespace lab
