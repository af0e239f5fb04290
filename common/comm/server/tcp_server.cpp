// One thread, one poll. What goes wrong with one connection does not affect the others.
#include "common/comm/server/tcp_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "common/comm/server/wire.h"
#include "common/comm/store/tcp_store_socket.h"
#include "common/error.h"

namespace lab {
namespace {

using tcp_store::Clock;
using tcp_store::Socket;

constexpr int kTickMilliseconds = 100;
constexpr std::chrono::seconds kGreetingTime{5};
constexpr std::chrono::seconds kWaitEvery{2};  // between signs of life to a worker that waits

std::chrono::duration<double> seconds(double s) { return std::chrono::duration<double>(s); }

struct Connection {
  Socket socket;
  int64_t tag = 0;
  int worker = -1;  // -1: not greeted yet
  std::string in = {};
  std::string out = {};
  size_t sent = 0;  // of `out`
  Clock::time_point heard = Clock::now();
  Clock::time_point told = Clock::now();
  bool waits = false;   // for the answer to a pull
  bool leaves = false;  // to be closed once `out` is sent
  bool is_gone = false;
};

}  // namespace

struct TcpServer::Impl {
  Impl(Options the_options, ServerHooks the_hooks)
      : options(std::move(the_options)),
        serving(std::move(the_hooks)),
        listener(tcp_store::listen_at(options.address, options.port)) {}

  void run(const std::function<bool()>& tick, double patience_s) {
    std::optional<Clock::time_point> end;
    while (tick()) {
      if (!end && serving.finished())
        end = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds(patience_s));
      if (end && (connections.empty() || Clock::now() >= *end)) break;
      wait_for_events();
      for (const auto& connection : connections) attend(*connection);
      send_signs_of_life();
      remove_gone();
    }
    listener = Socket();  // nobody must wait here for a greeting
  }

  void wait_for_events() {
    // -1: poll leaves it out.
    const int listening = Clock::now() < accept_again ? -1 : listener.get();
    std::vector<pollfd> descriptors{{listening, POLLIN, 0}};
    for (const auto& c : connections)
      descriptors.push_back(
          {c->socket.get(), static_cast<short>(POLLIN | (c->out.empty() ? 0 : POLLOUT)), 0});
    if (poll(descriptors.data(), descriptors.size(), kTickMilliseconds) <= 0) return;
    if (descriptors[0].revents == 0) return;
    Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {  // no descriptors left, say: others may close some
      accept_again = Clock::now() + std::chrono::milliseconds(kTickMilliseconds);
      return;
    }
    if (connections.size() >= options.most_workers) return;
    tcp_store::prepare(socket);
    tcp_store::limit_unacknowledged(socket, std::max(60.0, options.silent_s));
    auto connection = std::make_unique<Connection>();
    connection->socket = std::move(socket);
    connection->tag = next_tag++;
    connections.push_back(std::move(connection));
  }

  void attend(Connection& c) {
    if (c.is_gone) return;
    try {
      int64_t received = 0;
      while (!c.leaves && (received = tcp_store::receive_some(c.socket, c.in)) > 0) {
        c.heard = Clock::now();
        while (auto frame = take_frame(c.in, c.worker < 0 ? kMostText : payload_bytes()))
          take(c, *frame);
        if (c.is_gone) return;
      }
      if (received < 0) return lose(c, "its connection has ended");
      const auto now = Clock::now();
      if (c.worker < 0 && now - c.heard > kGreetingTime) return lose(c, "it has said nothing");
      if (c.worker >= 0 && !c.waits && now - c.heard > seconds(options.silent_s))
        return lose(c, fmt::format("no word for {:g} s", options.silent_s));
      send(c);
    } catch (const std::exception& error) {
      if (hooks_failed) throw;
      lose(c, error.what());
    }
  }

  /// What the hooks answer. An error of theirs is not this connection's: it ends run().
  template <typename Hooks>
  std::vector<Serving::Answer> answers_of(const Hooks& hooks) {
    hooks_failed = true;
    std::vector<Serving::Answer> answers = hooks();
    hooks_failed = false;
    return answers;
  }

  void take(Connection& c, Frame& frame) {
    if (c.worker < 0) return greet(c, frame);
    Request request;
    if (frame.kind == Frame::Kind::kPush) {
      request = {.kind = Request::Kind::kPush,
                 .push = {.ticket = frame.numbers[0],
                          .gradient = {.mean = from_payload(frame.payload, options.elements),
                                       .samples = frame.numbers[1],
                                       .loss = frame.loss}}};
      require(request.push.gradient.samples >= 0, "a push with {} samples", frame.numbers[1]);
    } else {
      require(frame.kind == Frame::Kind::kPull, "a frame that no worker sends");
      c.waits = true;
    }
    answer(answers_of([&] { return serving.on_request(c.worker, c.tag, request); }));
  }

  void greet(Connection& c, const Frame& frame) {
    require(frame.kind == Frame::Kind::kHello, "the first frame is not a greeting");
    if (frame.payload != options.work) {
      c.out += encode({.kind = Frame::Kind::kRefused, .payload = options.work});
      c.leaves = true;
      notes.push_back("refused a worker that computes something else: " +
                      first_difference(options.work, frame.payload));
      return;
    }
    int64_t number = frame.numbers[0];
    const std::vector<int> taken = workers();
    // Two processes that both believe they have this number must not drive each other out forever.
    const bool yields = frame.numbers[1] != 0 && std::ranges::count(taken, number) > 0;
    if (number < 0 || yields)
      for (number = options.first_free; std::ranges::count(taken, number) > 0;) ++number;
    require(number < static_cast<int64_t>(options.most_workers), "a worker of number {}", number);
    for (const auto& other : connections)  // most likely dead, and we have not noticed
      if (other->worker == number && !other->is_gone) lose(*other, "its number was taken over");
    c.worker = static_cast<int>(number);
    c.out += encode({.kind = Frame::Kind::kWelcome, .numbers = {number, 0, 0}});
    notes.push_back(fmt::format("worker {} has joined", number));
  }

  void answer(const std::vector<Serving::Answer>& answers) {
    for (const Serving::Answer& each : answers) {
      const auto found = std::ranges::find_if(
          connections, [&](const auto& c) { return c->tag == each.tag && !c->is_gone; });
      if (found == connections.end()) continue;
      const Reply& reply = each.reply;
      Frame frame{.kind = Frame::Kind::kTaken};
      if (reply.kind == Reply::Kind::kDone) frame.kind = Frame::Kind::kDone;
      if (reply.kind == Reply::Kind::kWork)
        frame = {.kind = Frame::Kind::kWork,
                 .numbers = {reply.ticket.number, reply.ticket.item, reply.ticket.version},
                 .payload = to_payload(reply.weights)};
      Connection& c = **found;
      c.waits = false;
      c.out += encode(frame);
      c.heard = Clock::now();  // from now on it computes
    }
  }

  /// Gives up the worker of this connection, so that others may get its work.
  void lose(Connection& c, const std::string& why) {
    if (std::exchange(c.is_gone, true)) return;
    if (c.worker < 0) {
      if (!c.leaves) notes.push_back("a connection was closed: " + why);
      return;
    }
    if (!serving.finished()) notes.push_back(fmt::format("worker {} is gone: {}", c.worker, why));
    answer(answers_of([&] { return serving.on_leave(c.worker); }));
  }

  static void send(Connection& c) {
    while (c.sent < c.out.size()) {
      const int64_t sent = tcp_store::send_some(c.socket, std::string_view(c.out).substr(c.sent));
      require(sent >= 0, "its connection has ended");
      if (sent == 0) return;
      c.sent += static_cast<size_t>(sent);
    }
    c.out.clear();
    c.sent = 0;
    c.is_gone = c.is_gone || c.leaves;
  }

  void send_signs_of_life() {
    const auto now = Clock::now();
    for (const auto& c : connections)
      if (c->waits && c->out.empty() && now - c->told > kWaitEvery) {
        c->out += encode({.kind = Frame::Kind::kWait});
        c->told = now;
      }
  }

  void remove_gone() {
    std::erase_if(connections, [](const auto& c) { return c->is_gone; });
  }

  std::vector<int> workers() const {
    std::set<int> numbers;
    for (const auto& c : connections)
      if (c->worker >= 0 && !c->is_gone) numbers.insert(c->worker);
    return {numbers.begin(), numbers.end()};
  }

  uint64_t payload_bytes() const { return static_cast<uint64_t>(options.elements) * sizeof(float); }

  Options options;
  Serving serving;
  Socket listener;
  std::vector<std::unique_ptr<Connection>> connections;
  int64_t next_tag = 0;
  std::vector<std::string> notes;
  bool hooks_failed = false;
  Clock::time_point accept_again = Clock::now();
};

TcpServer::TcpServer(Options options, ServerHooks hooks)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(hooks))) {}

TcpServer::~TcpServer() = default;

uint16_t TcpServer::port() const { return tcp_store::own_port(impl_->listener); }

void TcpServer::run(const std::function<bool()>& tick, double patience_s) {
  impl_->run(tick, patience_s);
}

std::vector<int> TcpServer::workers() const { return impl_->workers(); }

std::vector<std::string> TcpServer::take_notes() { return std::exchange(impl_->notes, {}); }

}  // namespace lab
