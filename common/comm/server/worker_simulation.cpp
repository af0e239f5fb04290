// The event queue.
#include "common/comm/server/worker_simulation.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <random>
#include <utility>

#include "common/error.h"

namespace lab {
namespace {

using Kind = SimulatedEvent::Kind;

class Run {
 public:
  Run(const WorkerSimulation& options, ServerHooks server,
      const std::function<WorkerLogic(int)>& make_worker)
      : options_(options),
        serving_(std::move(server)),
        make_worker_(make_worker),
        random_(options.seed) {}

  WorkerSimulationReport run() {
    for (const SimulatedWorker& worker : options_.workers) {
      const size_t i = lives_.size();
      lives_.push_back({.worker = worker});
      at(worker.begins_at, [this, i] { begin(i); });
      if (worker.killed_at < std::numeric_limits<double>::infinity())
        at(worker.killed_at, [this, i] { kill(i); });
    }
    for (int64_t count = 0; !events_.empty(); ++count) {
      require(count < options_.most_events,
              "{} events in simulated time, and the server has not finished", count);
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      event.action();
      if (!report_.finished && serving_.finished()) {
        report_.finished = true;
        report_.seconds = now_;
      }
    }
    if (!report_.finished) report_.seconds = now_;
    return std::move(report_);
  }

 private:
  /// A worker's process, from its start to its end. `attempt` numbers its requests.
  struct Life {
    SimulatedWorker worker;
    WorkerLogic logic = {};
    int64_t attempt = 0;
    bool begun = false;
    bool over = false;
    bool closed = false;  // the server has noticed the end, or has met this worker's next process
  };
  struct Event {
    double time = 0;
    int64_t order = 0;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(other.time, other.order) < std::pair(time, order);
    }
  };
  static constexpr int64_t kAttempts = 1'000'000'000;

  void at(double time, std::function<void()> action) {
    events_.push({time, order_++, std::move(action)});
  }
  void note(Kind kind, size_t life, const Ticket& ticket = {}) {
    report_.events.push_back({now_, kind, lives_[life].worker.number, ticket});
  }
  double draw() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  bool happens(double probability) { return probability > 0 && draw() < probability; }

  void begin(size_t i) {
    Life& life = lives_[i];
    if (life.over) return;
    for (Life& other : lives_)  // a new connection of the same worker replaces the old one
      if (&other != &life && other.worker.number == life.worker.number && other.begun)
        other.closed = true;
    life.begun = true;
    life.logic = make_worker_(life.worker.number);
    note(Kind::kJoined, i);
    ask(i, life.logic({}), 0);
  }

  void kill(size_t i) {
    Life& life = lives_[i];
    if (life.over) return;
    life.over = true;
    if (!life.begun) return;
    note(Kind::kKilled, i);
    at(now_ + options_.notice_s, [this, i] {
      if (std::exchange(lives_[i].closed, true)) return;
      send_answers(serving_.on_leave(lives_[i].worker.number));
    });
  }

  /// Sends the process's next request after `compute_s`.
  void ask(size_t i, Request request, double compute_s) {
    if (request.kind == Request::Kind::kStop) {
      lives_[i].over = true;
      return note(Kind::kStopped, i);
    }
    const int64_t attempt = ++lives_[i].attempt;
    at(now_ + compute_s, [this, i, attempt, request = std::move(request), compute_s] {
      if (lives_[i].over) return;
      const bool is_push = request.kind == Request::Kind::kPush;
      if (compute_s > 0 || !is_push) note(is_push ? Kind::kPushed : Kind::kWaiting, i);
      if (is_push && happens(options_.false_alarms))
        send_answers(serving_.on_leave(lives_[i].worker.number));
      send(request, i, attempt);
      if (options_.patience_s < std::numeric_limits<double>::infinity())
        at(now_ + options_.patience_s, [this, i, attempt] { hear(i, attempt, {}); });
    });
  }

  void send(const Request& request, size_t i, int64_t attempt) {
    const double arrival =
        pass(into_server_free_, request.kind == Request::Kind::kPush ? options_.bytes : 0);
    if (happens(options_.lost)) return;
    at(arrival, [this, i, attempt, request] {
      if (lives_[i].closed) return;
      send_answers(serving_.on_request(lives_[i].worker.number,
                                       static_cast<int64_t>(i) * kAttempts + attempt, request));
    });
  }

  void send_answers(const std::vector<Serving::Answer>& answers) {
    for (const Serving::Answer& answer : answers) {
      const double arrival =
          pass(out_of_server_free_, answer.reply.kind == Reply::Kind::kWork ? options_.bytes : 0);
      if (happens(options_.lost)) continue;
      const auto life = static_cast<size_t>(answer.tag / kAttempts);
      at(arrival, [this, life, attempt = answer.tag % kAttempts, reply = answer.reply] {
        hear(life, attempt, reply);
      });
    }
  }

  /// Receives the reply to request number `attempt`, or kNothing after a timeout. Replies to older
  /// requests are dropped.
  void hear(size_t i, int64_t attempt, const Reply& reply) {
    Life& life = lives_[i];
    if (life.over || attempt != life.attempt) return;
    const bool is_work = reply.kind == Reply::Kind::kWork;
    if (is_work) note(Kind::kWork, i, reply.ticket);
    if (reply.kind == Reply::Kind::kTaken) note(Kind::kTaken, i);
    ask(i, life.logic(reply), is_work ? life.worker.compute_s * (1 + options_.jitter * draw()) : 0);
  }

  /// The arrival time of a message that is sent now, on a wire that carries one at a time.
  double pass(double& free_at, double bytes) {
    free_at = std::max(free_at, now_) + options_.link.seconds(bytes);
    return free_at + (options_.late_s > 0 ? options_.late_s * draw() : 0);
  }

  const WorkerSimulation& options_;
  Serving serving_;
  const std::function<WorkerLogic(int)>& make_worker_;
  std::mt19937_64 random_;
  std::vector<Life> lives_;
  std::priority_queue<Event> events_;
  int64_t order_ = 0;
  double now_ = 0;
  double into_server_free_ = 0;
  double out_of_server_free_ = 0;
  WorkerSimulationReport report_;
};

}  // namespace

WorkerSimulationReport simulate_workers(const WorkerSimulation& options, ServerHooks server,
                                        const std::function<WorkerLogic(int)>& make_worker) {
  return Run(options, std::move(server), make_worker).run();
}

}  // namespace lab
