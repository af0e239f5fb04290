#include "tests/labs/11_parameter_server/rank_server.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "common/comm/server/worker_simulation.h"
#include "common/error.h"
#include "labs/11_parameter_server/parameter_server.h"
#include "tests/labs/11_parameter_server/entries.h"

namespace lab11 {
namespace {

using entries::kElements;
using lab::Tensor;
using lab::grading::Parcel;

/// A server with the student's functions that logs every call.
class Logged {
 public:
  Logged(int index, Server start, std::vector<double>& log, std::vector<double>& means)
      : index_(index),
        log_(log),
        means_(means),
        server_(std::move(start)),
        weights_(Tensor::zeros(server_.sum.shape())) {
    server_.update = [this](const Tensor& mean) {
      ++updates_;
      version_seen_ = server_.version;
      for (int64_t i = 0; i < mean.numel(); ++i) {
        means_.push_back(mean.data()[i]);
        weights_.data()[i] -= static_cast<float>(entries::kRate) * mean.data()[i];
      }
    };
  }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

  std::optional<lab::Ticket> pull(int worker) {
    const std::optional<lab::Ticket> ticket = on_pull(server_, worker);
    begin(entries::kPull, worker);
    end(ticket.has_value(), ticket.value_or(lab::Ticket{}));
    return ticket;
  }

  void push(const lab::Push& push) {
    const Tensor before = push.gradient.mean.clone();
    const bool counts = on_push(server_, push);
    begin(entries::kPush, push.ticket, push.gradient.samples, &before);
    end(counts, {}, !std::ranges::equal(before.values(), push.gradient.mean.values()));
  }

  void leave(int worker) {
    on_leave(server_, worker);
    begin(entries::kLeave, worker);
    end(true, {});
  }

  void may_start() {
    const bool may = lab11::may_start(server_);
    begin(entries::kMayStart, 0);
    end(may, {});
  }

  /// `sum` has the weights' shape; without it the next push cannot be added.
  bool has_sum() const { return server_.sum.defined() && server_.sum.shape() == weights_.shape(); }
  bool is_finished() const { return finished(server_); }
  Tensor weights() const { return weights_.clone(); }

  lab::ServerHooks hooks() {
    return {.pull = [this](int worker) { return pull(worker); },
            .push = [this](const lab::Push& p) { push(p); },
            .leave = [this](int worker) { leave(worker); },
            .finished = [this] { return is_finished(); },
            .weights = [this] { return weights(); }};
  }

 private:
  void begin(entries::Operation operation, int64_t argument, int64_t samples = 0,
             const Tensor* gradient = nullptr) {
    add(index_, operation, argument, samples);
    add_values(gradient != nullptr ? *gradient : Tensor());
  }

  void end(bool yes, const lab::Ticket& ticket, bool changed = false) {
    add(yes, ticket.number, ticket.item, ticket.version);
    add(updates_, version_seen_, changed);
    add(server_.version, server_.gradients, server_.samples, server_.next_item);
    add(server_.next_ticket, server_.leases.size());
    for (const auto& [number, lease] : server_.leases)
      add(number, lease.worker, lease.item, lease.version);
    add(server_.returned.size());
    for (const int64_t item : server_.returned) add(item);
    add_values(server_.sum);
  }

  void add_values(const Tensor& tensor) {
    add(tensor.defined() ? tensor.numel() : 0);
    if (tensor.defined())
      for (const float value : tensor.values()) add(value);
  }

  template <typename... Numbers>
  void add(const Numbers&... numbers) {
    (log_.push_back(static_cast<double>(numbers)), ...);
  }

  int index_;
  std::vector<double>& log_;
  std::vector<double>& means_;
  Server server_;
  int64_t updates_ = 0;
  int64_t version_seen_ = 0;
  Tensor weights_;
};

lab::Gradient gradient_of(int64_t item, const Tensor& weights) {
  lab::Gradient gradient{.mean = Tensor::zeros({kElements}), .samples = entries::samples_of(item)};
  if (gradient.samples > 0)
    for (int64_t i = 0; i < kElements; ++i)
      gradient.mean.data()[i] = static_cast<float>(entries::quadratic(item, i, weights.data()[i]));
  return gradient;
}

/// A server that runs with n, s and items, and whose state comes next in `numbers` (entries.h).
Server read_server(int64_t n, int64_t s, int64_t items, const std::vector<double>& numbers,
                   size_t& at) {
  const auto next = [&] { return static_cast<int64_t>(numbers.at(at++)); };
  Server server;
  server.gradients_per_update = static_cast<int>(n);
  server.staleness = s;
  server.items = items;
  server.version = next();
  server.gradients = static_cast<int>(next());
  server.samples = next();
  server.next_item = next();
  server.next_ticket = next();
  for (int64_t left = next(); left > 0; --left) {
    Lease& lease = server.leases[next()];
    lease.worker = static_cast<int>(next());
    lease.item = next();
    lease.version = next();
  }
  for (int64_t left = next(); left > 0; --left) server.returned.insert(next());
  const int64_t elements = next();
  server.sum = Tensor::zeros({elements});
  for (float& value : server.sum.values()) value = static_cast<float>(numbers.at(at++));
  return server;
}

}  // namespace

Parcel run_script(const Parcel& input) {
  std::vector<double> log;
  const auto count = static_cast<size_t>(input.number("servers"));
  std::vector<std::vector<double>> means(count);
  std::vector<std::unique_ptr<Logged>> servers;
  for (size_t k = 0; k < count; ++k) {
    size_t at = 0;
    servers.push_back(std::make_unique<Logged>(
        static_cast<int>(k),
        read_server(static_cast<int64_t>(input.number("n")),
                    static_cast<int64_t>(input.number("s")),
                    static_cast<int64_t>(input.number("items")), input.numbers("start"), at),
        log, means[k]));
  }
  const auto diverged = static_cast<int64_t>(input.number("diverged"));
  const std::vector<double> script = input.numbers("script");
  for (size_t i = 0; i + entries::kScriptLength <= script.size(); i += entries::kScriptLength) {
    Logged& server = *servers[static_cast<size_t>(script[i])];
    const auto argument = static_cast<int64_t>(script[i + 2]);
    switch (static_cast<int>(script[i + 1])) {
      case entries::kPull:
        server.pull(static_cast<int>(argument));
        break;
      case entries::kPush: {
        lab::Push push{.ticket = argument,
                       .gradient = {.mean = Tensor::zeros({server.weights().numel()}),
                                    .samples = static_cast<int64_t>(script[i + 3])}};
        int64_t element = 0;
        for (float& value : push.gradient.mean.values()) {
          if (push.gradient.samples > 0)
            value = static_cast<float>(entries::scripted(argument, element++));
          if (argument == diverged) value = std::numeric_limits<float>::infinity();
        }
        if (argument == diverged) push.gradient.loss = std::numeric_limits<double>::infinity();
        server.push(push);
        break;
      }
      case entries::kLeave:
        server.leave(static_cast<int>(argument));
        break;
      default:
        server.may_start();
    }
    if (!server.has_sum()) break;
  }
  Parcel result;
  result.set("log", log);
  for (size_t k = 0; k < count; ++k) result.set("means" + std::to_string(k), means[k]);
  return result;
}

Parcel run_may_start(const Parcel& input) {
  const std::vector<double> numbers = input.numbers("states");
  std::vector<double> answers;
  for (size_t at = 0; at < numbers.size();) {
    const auto next = [&] { return static_cast<int64_t>(numbers.at(at++)); };
    const int64_t n = next(), s = next(), items = next();
    answers.push_back(may_start(read_server(n, s, items, numbers, at)) ? 1 : 0);
  }
  Parcel result;
  result.set("answers", answers);
  return result;
}

Parcel run_schedules(const Parcel& input) {
  std::mt19937_64 random(static_cast<uint64_t>(input.number("seed")));
  const auto below = [&](uint64_t limit) { return static_cast<double>(random() % limit); };
  const bool calm = input.has("calm");  // nobody dies, nothing is lost
  const auto count = static_cast<size_t>(input.number("count"));
  std::vector<double> settings;  // per schedule: n, s, items, seconds, finished, final weights
  Parcel result;
  for (size_t k = 0; k < count; ++k) {
    int n = 1 + static_cast<int>(random() % 5);
    const int64_t bounds[] = {0, 0, 1, 2, 4, kUnbounded};
    int64_t s = bounds[random() % 6];
    int64_t items = n * (2 + static_cast<int64_t>(random() % 5));
    lab::WorkerSimulation options{.workers = {},
                                  .link = {.alpha = 0.01 * below(10), .beta = 0},
                                  .seed = random(),
                                  .most_events = 20'000};
    if (calm) {
      n = static_cast<int>(input.number("n"));
      s = static_cast<int64_t>(input.number("s"));
      items = static_cast<int64_t>(input.number("items"));
      options.link = {};
      for (const double compute_s : input.numbers("compute_s"))
        options.workers.push_back(
            {.number = static_cast<int>(options.workers.size()), .compute_s = compute_s});
    } else {
      // Worker 0 outlives all others; some of these come back under their number.
      options.jitter = 0.1 * below(10);
      options.late_s = 0.1 * below(8);
      options.lost = 0.05 * below(5);
      options.patience_s = 2.5 + below(3);
      options.notice_s = below(4);
      options.false_alarms = 0.05 * below(4);
      options.workers.push_back({.number = 0, .compute_s = 0.5 + 0.5 * below(4)});
      const int workers = 1 + static_cast<int>(random() % 5);
      for (int w = 1; w < workers; ++w) {
        lab::SimulatedWorker worker{
            .number = w, .compute_s = 0.5 + 0.5 * below(6), .begins_at = below(2) * below(10)};
        if (random() % 2 == 0) worker.killed_at = worker.begins_at + 0.3 * below(30);
        options.workers.push_back(worker);
        if (random() % 4 == 0) {
          worker.begins_at = worker.killed_at + 0.3 * below(10);
          worker.killed_at = std::numeric_limits<double>::infinity();
          if (worker.begins_at < worker.killed_at) options.workers.push_back(worker);
        }
      }
    }
    std::vector<double> log;
    std::vector<double> means;
    Server fresh{.gradients_per_update = n, .staleness = s, .items = items};
    fresh.sum = Tensor::zeros({kElements});
    Logged server(0, std::move(fresh), log, means);
    const auto make_worker = [](int) -> lab::WorkerLogic {
      auto worker = std::make_shared<Worker>();
      return [worker](const lab::Reply& reply) {
        return on_reply(*worker, reply, [](const lab::Ticket& ticket, const Tensor& weights) {
          return gradient_of(ticket.item, weights);
        });
      };
    };
    bool endless = false;
    lab::WorkerSimulationReport report;
    try {
      report = lab::simulate_workers(options, server.hooks(), make_worker);
    } catch (const lab::Error& error) {
      endless = true;
      if (std::string(error.what()).find("events in simulated time") == std::string::npos) throw;
    }
    settings.insert(settings.end(),
                    {static_cast<double>(n), static_cast<double>(s), static_cast<double>(items),
                     report.seconds, report.finished ? 1.0 : 0.0, endless ? 1.0 : 0.0});
    const Tensor weights = server.weights();
    for (const float w : weights.values()) settings.push_back(w);
    result.set("log" + std::to_string(k), log);
    result.set("means" + std::to_string(k), means);
    if (endless) break;
  }
  result.set("settings", settings);
  return result;
}

}  // namespace lab11
