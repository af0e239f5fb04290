// A pool of connections: each call has its own.
#include "common/comm/store/tcp_store.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/store/store_rules.h"
#include "common/comm/store/tcp_store_protocol.h"
#include "common/comm/store/tcp_store_socket.h"
#include "common/error.h"
#include "common/parse_number.h"

namespace lab {
namespace {

using std::chrono::milliseconds;
using tcp_store::Clock;
using tcp_store::Kind;
using tcp_store::Message;
using tcp_store::receive_some;
using tcp_store::send_some;
using tcp_store::Socket;
using tcp_store::wait_for;

constexpr milliseconds kPatience{8'000};  // for an answer that needs no waiting
constexpr milliseconds kGrace{500};       // to end a `get` whose time is up

/// A connection, used by one call at a time.
struct Line {
  Socket socket;
  std::string input = {};
  uint32_t number = 0;  // of the latest request

  bool is_open() {
    return !tcp_store::wait_for(socket, POLLIN, Clock::now()) || receive_some(socket, input) >= 0;
  }
};

/// kOver: the other side has closed the connection. kLate: the deadline has passed.
enum class Result { kDone, kOver, kLate };

Result send_all(const Line& line, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const int64_t sent = send_some(line.socket, bytes);
    if (sent < 0) return Result::kOver;
    bytes.remove_prefix(static_cast<size_t>(sent));
    if (!bytes.empty() && !wait_for(line.socket, POLLOUT, deadline)) return Result::kLate;
  }
  return Result::kDone;
}

Result receive_more(Line& line, Clock::time_point deadline) {
  while (true) {
    const int64_t received = receive_some(line.socket, line.input);
    if (received != 0) return received > 0 ? Result::kDone : Result::kOver;
    if (!wait_for(line.socket, POLLIN, deadline)) return Result::kLate;
  }
}

Result send_request(Line& line, Message request, Clock::time_point deadline) {
  request.number = ++line.number;
  return send_all(line, encode(request), deadline);
}

/// To the latest request. Replies to earlier ones that were given up may still arrive.
Result receive_reply(Line& line, Clock::time_point deadline, Message& reply) {
  while (true) {
    while (auto message = tcp_store::take_message(line.input)) {
      if (message->number != line.number) continue;
      reply = *std::move(message);
      return Result::kDone;
    }
    const Result result = receive_more(line, deadline);
    if (result != Result::kDone) return result;
  }
}

Result exchange(Line& line, Message request, Clock::time_point deadline, Message& reply) {
  const Result result = send_request(line, std::move(request), deadline);
  return result == Result::kDone ? receive_reply(line, deadline, reply) : result;
}

}  // namespace

struct TcpStore::Impl {
  std::string address;
  uint16_t port = 0;
  std::mutex mutex;  // guards what follows
  std::optional<uint64_t> server;
  std::vector<Line> idle;

  std::string place() const { return tcp_store::place(address, port); }

  [[noreturn]] void throw_gone() const {
    fail("the store at {} is gone: did rank 0 end?", place());
  }

  /// Connects, trying repeatedly. If nobody listens, only if `patient`: later on, that means that
  /// the server has ended.
  Line connect(Clock::time_point deadline, bool patient) {
    milliseconds pause{10};
    const auto begin = Clock::now();
    while (true) {
      int error = 0;
      std::string reason = "it closes connections: are there too many?";
      if (Socket socket = tcp_store::connect_to(address, port, deadline, error)) {
        Line line{std::move(socket)};
        const Result result = greet(line, deadline);
        if (result == Result::kDone) return line;
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

  Result greet(Line& line, Clock::time_point deadline) {
    Result result = send_all(line, tcp_store::client_greeting(), deadline);
    while (result == Result::kDone && line.input.size() < tcp_store::kServerGreetingSize) {
      result = receive_more(line, deadline);
      require(tcp_store::may_be_server_greeting(line.input),
              "what listens at {} is not a store: choose another port with --master-port", place());
    }
    if (line.input.size() >= tcp_store::kClientGreetingSize)
      require(tcp_store::greeting_version(line.input) == tcp_store::kVersion,
              "the store at {} is of version {}, this program of version {}: start all ranks from "
              "the same build",
              place(), tcp_store::greeting_version(line.input), tcp_store::kVersion);
    if (result != Result::kDone) return result;

    const uint64_t identity = tcp_store::server_identity(line.input);
    line.input.erase(0, tcp_store::kServerGreetingSize);
    const std::lock_guard lock(mutex);
    if (!server) server = identity;
    if (server != identity) throw_gone();  // another job's store has taken the port
    return result;
  }

  /// A connection for one call: an idle one, or a new one.
  Line take() {
    while (true) {
      std::unique_lock lock(mutex);
      if (idle.empty()) break;
      Line line = std::move(idle.back());
      idle.pop_back();
      lock.unlock();
      if (line.is_open()) return line;
    }
    return connect(Clock::now() + kPatience, false);
  }

  void give_back(Line line) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(line));
  }

  /// A request that the server answers at once. Empty if the key is not set.
  std::optional<std::string> ask(Message request) {
    Line line = take();
    Message reply;
    const Result result = exchange(line, std::move(request), Clock::now() + kPatience, reply);
    return answer_of(std::move(line), result, std::move(reply));
  }

  std::optional<std::string> answer_of(Line line, Result result, Message reply) {
    if (result == Result::kOver) throw_gone();
    require(result == Result::kDone, "the store at {} does not answer: is rank 0 stopped?",
            place());
    give_back(std::move(line));
    if (reply.kind == Kind::kRefused) throw Error(reply.value);
    if (reply.kind == Kind::kAbsent) return std::nullopt;
    return std::move(reply.value);
  }

  /// Empty when the time is up. Before that, asks the server once more, without waiting: this ends
  /// the server's wait and returns a value that was set in time.
  std::optional<std::string> wait(const std::string& key, milliseconds timeout) {
    const auto deadline = store_rules::deadline_after(timeout);
    Line line = take();
    Message reply;
    Result result = send_request(line, {Kind::kGet, 0, key, ""}, Clock::now() + kGrace);
    if (result == Result::kDone) {
      result = receive_reply(line, deadline, reply);
      if (result == Result::kLate)
        result = exchange(line, {Kind::kTryGet, 0, key, ""}, Clock::now() + kGrace, reply);
    }
    if (result == Result::kLate) return std::nullopt;  // the connection is closed
    return answer_of(std::move(line), result, std::move(reply));
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
  impl_->ask({Kind::kSet, 0, key, value});
}

std::string TcpStore::get(const std::string& key, milliseconds timeout) {
  store_rules::check_key(key);
  auto value = impl_->wait(key, timeout);
  if (!value) store_rules::throw_timeout(key, timeout);
  return *std::move(value);
}

std::optional<std::string> TcpStore::try_get(const std::string& key) {
  store_rules::check_key(key);
  return impl_->ask({Kind::kTryGet, 0, key, ""});
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  store_rules::check_key(key);
  const auto sum = impl_->ask({Kind::kAdd, 0, key, std::to_string(amount)});
  const auto number = parse_number<int64_t>(sum.value_or(""));
  require(number.has_value(), "the store at {} returns nonsense for a counter", impl_->place());
  return *number;
}

}  // namespace lab
