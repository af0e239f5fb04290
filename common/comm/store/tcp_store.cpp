// A pool of connections: each call has its own.
#include "common/comm/store/tcp_store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/store/store_rules.h"
#include "common/comm/store/tcp_store_connection.h"
#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"
#include "common/error.h"
#include "common/parse_number.h"

namespace lab {
namespace {

using std::chrono::milliseconds;
using tcp_store::Clock;
using tcp_store::Connection;
using tcp_store::Kind;
using tcp_store::Message;
using tcp_store::Result;
using tcp_store::Socket;

constexpr milliseconds kPatience{8'000};  // for an answer that needs no waiting
constexpr milliseconds kGrace{500};       // for one that came just in time

}  // namespace

struct TcpStore::Impl {
  std::string address;
  uint16_t port = 0;
  std::mutex mutex;  // guards what follows
  std::optional<uint64_t> server;
  std::vector<Connection> idle;

  std::string place() const { return tcp_store::place(address, port); }

  [[noreturn]] void throw_gone() const {
    fail("the store at {} is gone: did rank 0 end?", place());
  }

  /// Connects, trying repeatedly. If nobody listens, it retries only if `patient`: later on, that
  /// means that the server has ended.
  Connection connect(Clock::time_point deadline, bool patient) {
    milliseconds pause{10};
    const auto begin = Clock::now();
    while (true) {
      int error = 0;
      std::string reason = "it closes connections: are there too many?";
      if (Socket socket = tcp_store::connect_to(address, port, deadline, error)) {
        Connection connection(std::move(socket));
        const Result result = greet(connection, deadline);
        if (result == Result::kDone) return connection;
        if (result == Result::kLate) reason = "what listens there does not answer";
      } else {
        reason = std::generic_category().message(error);
        if (!patient && error == ECONNREFUSED) throw_gone();
      }
      const auto now = Clock::now();
      require(now < deadline, "no store at {} after {:.3g} s ({}): is rank 0 running there?",
              place(), std::chrono::duration<double>(now - begin).count(), reason);
      std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
      pause = std::min(pause * 2, milliseconds(250));
    }
  }

  Result greet(Connection& connection, Clock::time_point deadline) {
    std::string answer;
    Result result = connection.send(tcp_store::greeting(tcp_store::kClientMagic), deadline);
    if (result == Result::kDone)
      result = connection.receive(tcp_store::kGreetingSize, answer, deadline);
    const std::string_view magic = tcp_store::kServerMagic;
    require(magic.starts_with(answer.substr(0, magic.size())),
            "what listens at {} is not a store: choose another port with --master-port", place());
    if (result != Result::kDone) return result;
    const uint32_t version = tcp_store::greeting_version(answer);
    require(version == tcp_store::kVersion,
            "the store at {} is of version {}, this program of version {}: start all ranks from "
            "the same build",
            place(), version, tcp_store::kVersion);

    result = connection.receive(tcp_store::kIdentitySize, answer, deadline);
    if (result != Result::kDone) return result;
    const uint64_t identity = tcp_store::decode_identity(answer);
    const std::lock_guard lock(mutex);
    if (!server) server = identity;
    if (server != identity) throw_gone();  // another job's store has taken the port
    return result;
  }

  /// A connection for one call: an idle one, or a new one.
  Connection take() {
    while (true) {
      std::unique_lock lock(mutex);
      if (idle.empty()) break;
      Connection connection = std::move(idle.back());
      idle.pop_back();
      lock.unlock();
      if (connection.is_open()) return connection;
    }
    return connect(Clock::now() + kPatience, false);
  }

  void give_back(Connection connection) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(connection));
  }

  /// Empty if no reply comes in time. Then the connection is of no more use: that reply may still
  /// come.
  std::optional<Message> exchange(Connection& connection, const Message& request,
                                  milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    Message reply;
    Result result = connection.send(encode(request), deadline);
    if (result == Result::kDone) result = connection.receive(reply, deadline);
    if (result == Result::kOver) throw_gone();
    if (result == Result::kLate) return std::nullopt;
    return reply;
  }

  /// A request that the server answers at once.
  Message ask(const Message& request) {
    Connection connection = take();
    auto reply = exchange(connection, request, kPatience);
    require(reply.has_value(), "the store at {} does not answer: is rank 0 stopped?", place());
    give_back(std::move(connection));
    if (reply->kind == Kind::kRefused) throw Error(reply->value);
    return *std::move(reply);
  }
};

TcpStore::TcpStore(const std::string& address, uint16_t port, milliseconds timeout)
    : impl_(std::make_unique<Impl>()) {
  impl_->address = address;
  impl_->port = port;
  impl_->give_back(impl_->connect(store_rules::deadline_after(timeout), true));
}

TcpStore::~TcpStore() = default;

void TcpStore::set(const std::string& key, const std::string& value) {
  store_rules::check_key(key);
  store_rules::check_value(key, value);
  impl_->ask({Kind::kSet, key, value});
}

std::optional<std::string> TcpStore::get_within(const std::string& key, milliseconds timeout) {
  store_rules::check_key(key);
  if (timeout <= milliseconds(0)) {
    Message reply = impl_->ask({Kind::kGet, key, "0"});
    if (reply.kind == Kind::kAbsent) return std::nullopt;
    return std::move(reply.value);
  }
  const auto deadline = store_rules::deadline_after(timeout);
  Connection connection = impl_->take();
  while (true) {
    const auto left =
        std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds(0));
    const milliseconds wait = std::min(left, tcp_store::kLongestWait);
    // A server that is stopped, in a debugger for instance, may go on before the time is up.
    auto reply =
        impl_->exchange(connection, {Kind::kGet, key, std::to_string(wait.count())}, left + kGrace);
    if (!reply) return std::nullopt;
    if (reply->kind == Kind::kAbsent && wait < left) continue;
    impl_->give_back(std::move(connection));
    if (reply->kind == Kind::kAbsent) return std::nullopt;
    return std::move(reply->value);
  }
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  store_rules::check_key(key);
  const Message sum = impl_->ask({Kind::kAdd, key, std::to_string(amount)});
  const auto number = parse_number<int64_t>(sum.value);
  require(number.has_value(), "the store at {} returns nonsense for a counter", impl_->place());
  return *number;
}

}  // namespace lab
