// Lab 11 · simulated time. Given.
#include "labs/11_parameter_server/main_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "common/comm/server/worker_simulation.h"
#include "common/error.h"
#include "common/io/files.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/report/line_chart.h"
#include "common/run/report/report_style.h"
#include "common/run/training/training_run.h"
#include "common/run/training/validation.h"
#include "common/tensor/parallel.h"
#include "labs/11_parameter_server/main_tables.h"
#include "labs/11_parameter_server/main_training.h"

namespace lab11 {

using namespace lab;

namespace {

using Kind = SimulatedEvent::Kind;
constexpr double kPatienceS = 4;

WorkerSimulationReport simulate(const Workers& workers, Learner& learner, Replica& replica) {
  const WorkerSimulation options{
      .workers = workers.schedule(),
      .link = {.alpha = 1e-6 * workers.link[0], .beta = 1e-9 * workers.link[1]},
      .bytes = static_cast<double>(learner.model().parameters().bytes()),
      .jitter = workers.jitter,
      .lost = workers.lost,
      .patience_s = workers.lost > 0 ? kPatienceS : std::numeric_limits<double>::infinity(),
      .notice_s = 1,
      .seed = static_cast<uint64_t>(workers.seed),
      .most_events = 1000 * learner.server().items + 100'000};
  return simulate_workers(options, learner.hooks(), [&replica](int) -> WorkerLogic {
    return [worker = std::make_shared<Worker>(), &replica](const Reply& reply) {
      return on_reply(*worker, reply, [&replica](const Ticket& ticket, const Tensor& weights) {
        return replica.compute(ticket, weights);
      });
    };
  });
}

/// A line per worker for the first seconds: the last digit of each item where the worker begins it,
/// '-' while it computes, '.' while it waits, 'x' once it has been killed.
std::string grid(const WorkerSimulationReport& report) {
  constexpr double kColumn = 0.5;  // s
  constexpr size_t kColumns = 64;
  std::map<int, std::string> rows;
  std::map<int, std::pair<double, char>> state;  // since when, and what is drawn
  const auto fill = [&](int worker, double until) {
    auto [since, letter] = state[worker];
    for (size_t c = 0; c < kColumns; ++c) {
      const double middle = (static_cast<double>(c) + 0.5) * kColumn;
      if (middle < since || middle >= until) continue;
      rows[worker][c] = letter;
      if (letter >= '0' && letter <= '9') letter = '-';
    }
  };
  for (const SimulatedEvent& event : report.events) {
    if (!rows.contains(event.worker)) {
      rows[event.worker] = std::string(kColumns, ' ');
      state[event.worker] = {event.time, ' '};
    }
    char letter = '.';
    if (event.kind == Kind::kWork) letter = static_cast<char>('0' + event.ticket.item % 10);
    if (event.kind == Kind::kKilled) letter = 'x';
    if (event.kind == Kind::kStopped) letter = ' ';
    fill(event.worker, event.time);
    state[event.worker] = {event.time, letter};
  }
  std::string text = fmt::format(
      "\nthe first {:g} s: the last digit of an item where a worker begins it, then - while it "
      "computes; . waiting, x dead\n",
      kColumn * static_cast<double>(kColumns));
  for (auto& [worker, row] : rows) {
    fill(worker, report.seconds);
    text += fmt::format("worker {:<3}|{}|\n", worker, row);
  }
  return text;
}

/// Throws Error unless the run has come to its end.
void require_end(const Learner& learner, const WorkerSimulationReport& report,
                 const RunPlan& plan) {
  if (learner.is_done()) return;
  int alive = 0;
  for (const SimulatedEvent& event : report.events)
    alive += event.kind == Kind::kJoined ? 1 : event.kind == Kind::kKilled ? -1 : 0;
  const std::string when = fmt::format("after {:.1f} s of simulated time and update {} of {}",
                                       report.seconds, learner.server().version, plan.steps);
  require(alive > 0, "no worker is left {}: --join brings another one", when);
  fail("{} workers wait for work forever {}: the server never hands out what is missing", alive,
       when);
}

/// Gradients that each worker has computed.
std::map<int, int64_t> pushes_of(const WorkerSimulationReport& report) {
  std::map<int, int64_t> pushes;
  for (const SimulatedEvent& event : report.events)
    pushes[event.worker] += event.kind == Kind::kPushed ? 1 : 0;
  return pushes;
}

}  // namespace

int train_simulated(const RunPlan& plan, const Workers& workers) {
  set_thread_count(plan.threads);
  const Input input(plan);
  Replica replica(plan, input);
  return train(plan, input, workers.bound(), [&](Learner& learner, const Ledger&, TrainingRun&) {
    const WorkerSimulationReport report = simulate(workers, learner, replica);
    require_end(learner, report, plan);
    return grid(report) + describe_workers(pushes_of(report), report.seconds, "s of simulated time",
                                           learner.stalest());
  });
}

namespace {

struct Compared {
  std::string name;
  Curve by_time = {};
  Curve by_gradients = {};
  int64_t gradients = 0;
  double seconds = 0;
  int64_t stalest = 0;
  double validation = 0;
};

Compared run_one(const std::string& name, RunPlan plan, const Workers& workers, int64_t n,
                 int64_t bound, const Input& input) {
  plan.steps = plan.steps * plan.accumulate / n;
  plan.accumulate = n;
  Learner learner(plan, input, bound);
  Replica replica(plan, input);
  Compared result{.name = name};
  std::vector<double> losses;
  learner.when_updated([&](const Learner::Update& update) {
    losses.push_back(update.loss);
    return true;
  });
  // The times of the updates: those of every n-th push that was taken.
  const WorkerSimulationReport report = simulate(workers, learner, replica);
  require_end(learner, report, plan);
  int64_t taken = 0;
  for (const SimulatedEvent& event : report.events)
    if (event.kind == Kind::kTaken && ++taken % n == 0 &&
        static_cast<size_t>(taken / n) <= losses.size()) {
      const double loss = losses[static_cast<size_t>(taken / n - 1)];
      result.by_time.push_back({event.time, loss});
      result.by_gradients.push_back({static_cast<double>(taken), loss});
    }
  for (const auto& [worker, count] : pushes_of(report)) result.gradients += count;
  result.seconds = report.seconds;
  result.stalest = learner.stalest();
  result.validation =
      validation_loss(learner.model(), input.data, plan, input.functions.loss).value_or(0.0);
  return result;
}

std::string chart(const std::string& title, const std::string& x, const std::vector<Compared>& all,
                  Curve Compared::*curve) {
  constexpr size_t kPoints = 120;
  LineChart chart{.title = title, .x_name = x, .y_name = "nats per token", .tall = true};
  for (const Compared& each : all)
    chart.lines.push_back({.name = each.name, .points = thinned(each.*curve, kPoints)});
  return line_chart_html(chart);
}

}  // namespace

int compare(const RunPlan& plan, const Workers& workers) {
  set_thread_count(plan.threads);
  const Input input(plan);
  const int64_t n = plan.accumulate;
  const int64_t bound = workers.bound() == 0 ? 4 : workers.bound();
  const std::string bounded =
      bound == kUnbounded ? "n, any staleness" : fmt::format("s = {}", bound);
  const std::vector<Compared> all{run_one("synchronous", plan, workers, n, 0, input),
                                  run_one(bounded, plan, workers, n, bound, input),
                                  run_one("asynchronous", plan, workers, 1, kUnbounded, input)};
  fmt::print("{:<18} {:>9} {:>12} {:>12} {:>10} {:>12} {:>16}\n", "", "updates", "gradients",
             "seconds", "per s", "staleness", "validation loss");
  for (const Compared& each : all)
    fmt::print("{:<18} {:>9} {:>12} {:>12.1f} {:>10.3f} {:>12} {:>16.4f}\n", each.name,
               each.by_time.size(), each.gradients, each.seconds,
               static_cast<double>(each.gradients) / each.seconds, each.stalest, each.validation);
  const std::filesystem::path folder =
      make_run_folder(plan.out, source_folder() / "runs", plan.run_name);
  write_file(folder / "compare.html",
             fmt::format("<!doctype html><meta charset=\"utf-8\"><title>Parameter server</title>"
                         "<style>{}</style><h1>Loss of the workers' gradients</h1>{}{}",
                         report_style(),
                         chart("against simulated time", "seconds", all, &Compared::by_time),
                         chart("against gradients", "gradients", all, &Compared::by_gradients)));
  fmt::print("\nboth figures  {}\n", (folder / "compare.html").string());
  return 0;
}

}  // namespace lab11
