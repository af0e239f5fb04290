#include "common/comm/server/server_link.h"

#include <poll.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "common/comm/server/wire.h"
#include "common/error.h"

namespace lab {
namespace {

using tcp_store::Clock;

Clock::time_point after(double s) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

/// The next frame; nothing if the connection has ended or the deadline has passed.
std::optional<Frame> next_frame(const tcp_store::Socket& socket, std::string& in,
                                uint64_t most_bytes, double silent_s) {
  while (true) {
    if (auto frame = take_frame(in, most_bytes)) return frame;
    if (!tcp_store::wait_for(socket, POLLIN, after(silent_s))) return {};
    if (tcp_store::receive_some(socket, in) < 0) return {};
  }
}

}  // namespace

ServerLink::ServerLink(Options options) : options_(std::move(options)) { connect(); }

void ServerLink::connect() {
  constexpr std::chrono::milliseconds kPause{50};
  const auto deadline = after(options_.connect_s);
  const std::string where = tcp_store::place(options_.address, options_.port);
  while (true) {
    int error = 0;
    in_.clear();
    socket_ = tcp_store::connect_to(options_.address, options_.port, deadline, error);
    std::optional<Frame> frame;
    if (socket_ && send(encode({.kind = Frame::Kind::kHello,
                                .numbers = {options_.worker, was_connected_ ? 1 : 0, 0},
                                .payload = options_.work})))
      frame = next_frame(socket_, in_, kMostText, options_.silent_s);  // it may be busy
    if (frame) {
      require(frame->kind != Frame::Kind::kRefused,
              "the server at {} computes something other than this worker: {}; "
              "start it with the server's options",
              where, first_difference(frame->payload, options_.work));
      require(frame->kind == Frame::Kind::kWelcome, "the program at {} is not a parameter server",
              where);
      options_.worker = static_cast<int>(frame->numbers[0]);
      was_connected_ = true;
      return;
    }
    require(
        Clock::now() < deadline,
        "the server at {} is gone: start it again with --resume, which continues from its newest "
        "checkpoint, and then its workers",
        where);
    std::this_thread::sleep_for(kPause);  // between two attempts to reach it
  }
}

bool ServerLink::send(const std::string& bytes) {
  for (std::string_view rest = bytes; !rest.empty();) {
    if (!tcp_store::wait_for(socket_, POLLOUT, after(options_.silent_s))) return false;
    const int64_t sent = tcp_store::send_some(socket_, rest);
    if (sent < 0) return false;
    rest.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

Reply ServerLink::exchange(const Request& request) {
  Frame frame{.kind = Frame::Kind::kPull};
  if (request.kind == Request::Kind::kPush)
    frame = {.kind = Frame::Kind::kPush,
             .numbers = {request.push.ticket, request.push.gradient.samples, 0},
             .loss = request.push.gradient.loss,
             .payload = to_payload(request.push.gradient.mean)};
  if (send(encode(frame))) {
    const auto most = static_cast<uint64_t>(options_.elements) * sizeof(float);
    while (const auto reply = next_frame(socket_, in_, most, options_.silent_s)) {
      if (reply->kind == Frame::Kind::kWait) continue;
      if (reply->kind == Frame::Kind::kTaken) return {.kind = Reply::Kind::kTaken};
      if (reply->kind == Frame::Kind::kDone) return {.kind = Reply::Kind::kDone};
      require(reply->kind == Frame::Kind::kWork, "the server sends a frame that is no reply");
      return {.kind = Reply::Kind::kWork,
              .ticket = {.number = reply->numbers[0],
                         .item = reply->numbers[1],
                         .version = reply->numbers[2]},
              .weights = from_payload(reply->payload, options_.elements)};
    }
  }
  connect();
  return {};
}

}  // namespace lab
