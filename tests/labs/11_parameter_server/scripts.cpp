#include "tests/labs/11_parameter_server/scripts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/grading/verdict.h"
#include "tests/labs/11_parameter_server/history.h"
#include "tests/labs/11_parameter_server/staleness.h"

namespace lab11 {
namespace {

using lab::grading::Call;
using lab::grading::JobOptions;
using lab::grading::Parcel;
using lab::grading::stop;

constexpr int64_t kUnbounded = int64_t{1} << 62;
constexpr size_t kSettings = 6 + entries::kElements;

JobOptions without(const std::string& task) {
  JobOptions options{.network = lab::grading::Network::kNone, .given = {"1", "2", "3", "4"}};
  options.given.erase(task);
  return options;
}

/// The weights after the same items in order, n in each update: lab 02.
std::vector<double> synchronous_weights(int64_t n, int64_t items) {
  std::vector<double> w(entries::kElements, 0.0);
  for (int64_t first = 0; first < items; first += n) {
    std::vector<double> sum(w.size(), 0.0);
    double samples = 0;
    for (int64_t item = first; item < first + n; ++item) {
      const auto count = static_cast<double>(entries::samples_of(item));
      samples += count;
      for (size_t i = 0; i < w.size(); ++i)
        sum[i] += count * entries::quadratic(item, static_cast<int64_t>(i), w[i]);
    }
    for (size_t i = 0; i < w.size(); ++i)
      if (samples > 0) w[i] -= entries::kRate * sum[i] / samples;
  }
  return w;
}

void judge_schedule(const Parcel& result, size_t k, const std::string& task) {
  const std::vector<double> all = result.numbers("settings");
  const std::vector<double> settings(
      all.begin() + static_cast<std::ptrdiff_t>(k * kSettings),
      all.begin() + static_cast<std::ptrdiff_t>((k + 1) * kSettings));
  const auto n = static_cast<int64_t>(settings[0]);
  const auto s = static_cast<int64_t>(settings[1]);
  const auto items = static_cast<int64_t>(settings[2]);
  std::vector<Oracle> oracles{Oracle(n, s, items)};
  const std::string number = std::to_string(k);
  expect_history(read_log(result.numbers("log" + number)), oracles,
                 {result.numbers("means" + number)}, task == "2");
  const std::string where =
      fmt::format("\n(a schedule with n = {}, s = {}, {} items)", n, bound_in_words(s), items);
  if (settings[5] != 0)
    stop("the run never ends: the workers ask, and the server does not finish" + where);
  if (settings[4] == 0)
    stop(
        fmt::format("the run has stopped with {} of {} items used: what is lost, and who waits for "
                    "what?{}",
                    oracles[0].state().version * n + oracles[0].state().gradients, items, where));
  if (oracles[0].stalest() > s)
    stop(fmt::format("a gradient was used with a staleness of {}{}", oracles[0].stalest(), where));
  if (s > 0) return;
  const std::vector<double> right = synchronous_weights(n, items);
  for (size_t i = 0; i < right.size(); ++i)
    if (!(std::abs(settings[6 + i] - right[i]) <= 1e-4 * (1 + std::abs(right[i]))))
      stop(
          fmt::format("with s = 0 the weights are not lab 02's: element {} is {:.6f}, not {:.6f}{}",
                      i, settings[6 + i], right[i], where));
}

}  // namespace

Script drawn_script(uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t bounds[] = {0, 1, 1, 2, 3, 5, kUnbounded};
  Script script{.name = fmt::format("drawn, number {}", seed),
                .n = 1 + static_cast<int64_t>(random() % 4),
                .s = bounds[random() % 7],
                .items = 0,
                .servers = random() % 4 == 0 ? 2 : 1};
  script.items = script.n * (3 + static_cast<int64_t>(random() % 8));
  const auto workers = 1 + random() % 6;
  std::vector<Oracle> oracles(static_cast<size_t>(script.servers),
                              Oracle(script.n, script.s, script.items));
  for (int k = 0; k < 90; ++k) {
    Step step{.server = static_cast<int>(random() % oracles.size())};
    Oracle& oracle = oracles[static_cast<size_t>(step.server)];
    const auto& leases = oracle.state().leases;
    const auto worker = static_cast<int64_t>(random() % workers);
    const uint64_t what = random() % 20;
    if (what < 9 && leases.empty()) {
      step = {entries::kPull, worker, 0, step.server};
    } else if (what < 9) {  // a lease is used, any of them
      auto lease = leases.begin();
      std::advance(lease, static_cast<std::ptrdiff_t>(random() % leases.size()));
      step = {entries::kPush, lease->first, static_cast<int64_t>(random() % 5), step.server};
    } else if (what < 11) {  // a ticket of the past, perhaps used, perhaps taken back
      const auto below = static_cast<uint64_t>(oracle.state().next_ticket + 2);
      step = {entries::kPush, static_cast<int64_t>(random() % below),
              static_cast<int64_t>(1 + random() % 4), step.server};
    } else if (what < 12) {
      step = {entries::kLeave, worker, 0, step.server};
    } else if (what < 15) {
      step = {entries::kMayStart, 0, 0, step.server};
    } else {  // a worker without a lease, if there is one
      int64_t asking = worker;
      for (const auto& [ticket, lease] : leases)
        if (lease.worker == asking && random() % 4 != 0)
          asking = (asking + 1) % static_cast<int64_t>(workers);
      step = {entries::kPull, asking, 0, step.server};
    }
    script.steps.push_back(step);
    Record call;
    call.argument = step.argument;
    call.samples = step.samples;
    call.gradient.assign(entries::kElements, 0.0);
    if (step.operation == entries::kPull) oracle.pull(step.argument);
    if (step.operation == entries::kPush) oracle.push(call);
    if (step.operation == entries::kLeave) oracle.leave(step.argument);
  }
  return script;
}

void expect_scripts(const std::vector<Script>& scripts, const std::string& task) {
  std::vector<Call> calls;
  for (const Script& script : scripts) {
    Call call{.scenario = "script", .inputs = std::vector<Parcel>(1), .name = script.name};
    Parcel& input = call.inputs[0];
    input.set("n", static_cast<double>(script.n));
    input.set("s", static_cast<double>(script.s));
    input.set("items", static_cast<double>(script.items));
    input.set("servers", script.servers);
    std::vector<double> numbers;
    for (const Step& step : script.steps)
      numbers.insert(numbers.end(),
                     {static_cast<double>(step.server), static_cast<double>(step.operation),
                      static_cast<double>(step.argument), static_cast<double>(step.samples)});
    input.set("script", numbers);
    calls.push_back(call);
  }
  judge_calls(calls, without(task), [&](size_t k, const std::vector<Parcel>& ranks) {
    const Script& script = scripts[k];
    std::vector<Oracle> oracles(static_cast<size_t>(script.servers),
                                Oracle(script.n, script.s, script.items));
    std::vector<std::vector<double>> means;
    for (int m = 0; m < script.servers; ++m)
      means.push_back(ranks[0].numbers("means" + std::to_string(m)));
    expect_history(read_log(ranks[0].numbers("log")), oracles, means, task == "2");
  });
}

void expect_schedules(const std::string& task, int calls, int schedules_per_call) {
  std::vector<Call> all;
  for (int k = 0; k < calls; ++k) {
    Call call{.scenario = "schedules",
              .inputs = std::vector<Parcel>(1),
              .name = fmt::format("schedules, drawn, number {}", k)};
    call.inputs[0].set("seed", static_cast<double>(1000 * lab::grading::scenario_seed()) + k +
                                   100 * std::stod(task));
    call.inputs[0].set("count", schedules_per_call);
    all.push_back(call);
  }
  judge_calls(all, without(task), [&](size_t, const std::vector<Parcel>& ranks) {
    const size_t count =
        ranks[0].numbers("settings").size() / kSettings;  // fewer if one is endless
    for (size_t k = 0; k < count; ++k) judge_schedule(ranks[0], k, task);
  });
}

double calm_seconds(const std::string& task, int64_t n, int64_t s, int64_t items,
                    const std::vector<double>& compute_s) {
  Call call{.scenario = "schedules", .inputs = std::vector<Parcel>(1), .name = "four workers"};
  Parcel& input = call.inputs[0];
  input.set("seed", 1);
  input.set("count", 1);
  input.set("calm", 1);
  input.set("n", static_cast<double>(n));
  input.set("s", static_cast<double>(s));
  input.set("items", static_cast<double>(items));
  input.set("compute_s", compute_s);
  const std::vector<Parcel> ranks = run_call(call, without(task));
  judge_schedule(ranks[0], 0, task);
  return ranks[0].numbers("settings")[3];
}

}  // namespace lab11
