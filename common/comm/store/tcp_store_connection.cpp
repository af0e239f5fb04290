// Reads requests, answers them, and keeps time.
#include "common/comm/store/tcp_store_connection.h"

#include <poll.h>

#include <utility>

#include "common/error.h"
#include "common/parse_number.h"

namespace lab::tcp_store {

// Only those who debug the server see these error messages.

Connection::Connection(Socket socket, const std::string& greeting, const TcpStoreLimits& limits)
    : socket_(std::move(socket)),
      greeting_(greeting),
      limits_(limits),
      deadline_(Clock::now() + limits.greeting) {}

short Connection::events() const { return output_.empty() ? POLLIN : POLLOUT; }

void Connection::serve(MemoryStore& values) {
  if (output_.empty())
    require(receive_some(socket_, input_) >= 0, "the client has left");
  else
    flush();
  if (!greeted_) greet();
  while (greeted_ && output_.empty()) {
    const std::optional<Message> request = take_message(input_);
    if (!request) break;
    got_on_ = true;
    waiting_.reset();
    answer(*request, values);
  }
  set_deadline();
}

void Connection::look_again(MemoryStore& values) {
  if (!waiting_) return;
  auto value = values.try_get(waiting_->key);
  if (!value) return;
  reply(*waiting_, Kind::kValue, *std::move(value));
  waiting_.reset();
  set_deadline();
}

void Connection::greet() {
  require(may_be_client_greeting(input_), "this is not a client");
  if (input_.size() < kClientGreetingSize) return;
  output_ = greeting_;
  flush();
  const uint32_t version = greeting_version(input_);
  require(version == kVersion, "a client of version {}", version);
  input_.erase(0, kClientGreetingSize);
  greeted_ = true;
  got_on_ = true;
}

void Connection::answer(const Message& request, MemoryStore& values) {
  switch (request.kind) {
    case Kind::kSet:
      try {
        values.set(request.key, request.value);
        return reply(request, Kind::kValue, "");
      } catch (const Error& error) {
        return reply(request, Kind::kRefused, error.what());
      }
    case Kind::kGet:
      waiting_ = request;
      return look_again(values);
    case Kind::kTryGet: {
      auto value = values.try_get(request.key);
      return reply(request, value ? Kind::kValue : Kind::kAbsent, value ? *std::move(value) : "");
    }
    case Kind::kAdd: {
      const auto amount = parse_number<int64_t>(request.value);
      require(amount.has_value(), "an amount that is not a number");
      try {
        return reply(request, Kind::kValue, std::to_string(values.add(request.key, *amount)));
      } catch (const Error& error) {
        return reply(request, Kind::kRefused, error.what());
      }
    }
    default:
      fail("a reply from a client");
  }
}

void Connection::reply(const Message& request, Kind kind, std::string value) {
  output_ = encode({kind, request.number, "", std::move(value)});
  flush();
}

void Connection::flush() {
  const int64_t sent = send_some(socket_, output_);
  require(sent >= 0, "the client has left");
  output_.erase(0, static_cast<size_t>(sent));
  if (output_.empty()) got_on_ = true;
}

void Connection::set_deadline() {
  if (!greeted_) return;
  const bool busy = !input_.empty() || !output_.empty();
  if (!busy)
    deadline_ = Clock::time_point::max();
  else if (got_on_ || deadline_ == Clock::time_point::max())
    deadline_ = Clock::now() + limits_.message;
  got_on_ = false;
}

}  // namespace lab::tcp_store
