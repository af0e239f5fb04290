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

/// Workers pull, push and leave in waves: more of the one than of the other for a while.
struct Wave {
  uint64_t pushes, late_pushes, leaves, questions;  // of 20 operations, added up; the rest: pulls
};
constexpr Wave kEven{9, 11, 12, 15}, kPulls{1, 2, 2, 3}, kPushes{14, 16, 16, 17},
    kLeaves{1, 2, 14, 15};

int64_t drawn_samples(std::mt19937_64& random) {
  constexpr int64_t kMany[] = {1, 70'000, (1 << 24) + 1, 3'000'000'000, 5'000'000'000};
  return random() % 8 == 0 ? kMany[random() % 5] : static_cast<int64_t>(random() % 5);
}

Step drawn_step(const Oracle& oracle, const std::vector<int64_t>& workers, const Wave& wave,
                std::mt19937_64& random) {
  const auto& leases = oracle.state().leases;
  int64_t worker = workers[random() % workers.size()];
  const uint64_t what = random() % 20;
  if (what < wave.pushes && !leases.empty()) {  // any lease, but the oldest one's worker is slow
    auto lease = leases.begin();
    std::advance(lease, static_cast<std::ptrdiff_t>(random() % leases.size()));
    if (lease == leases.begin() && leases.size() > 1 && random() % 4 != 0) ++lease;
    return {entries::kPush, lease->first, drawn_samples(random)};
  }
  if (what >= wave.pushes && what < wave.late_pushes) {  // perhaps used, perhaps taken back
    const int64_t next = oracle.state().next_ticket;
    const auto ago = static_cast<int64_t>(random() % 20);
    return {entries::kPush, std::max<int64_t>(0, next + 1 - ago),
            static_cast<int64_t>(1 + random() % 4)};
  }
  if (what >= wave.late_pushes && what < wave.leaves) return {entries::kLeave, worker};
  if (what >= wave.leaves && what < wave.questions) return {entries::kMayStart};
  for (const auto& [ticket, lease] : leases)  // mostly one without a lease
    if (lease.worker == worker && random() % 4 != 0) worker = workers[random() % workers.size()];
  return {entries::kPull, worker};
}

std::vector<Step> drawn_steps(std::vector<Oracle*> servers, const std::vector<int64_t>& workers,
                              int count, std::mt19937_64& random) {
  const Wave* wave = &kEven;
  std::vector<Step> steps;
  for (int k = 0; k < count; ++k) {
    if (random() % 15 == 0) {
      const Wave* waves[] = {&kEven, &kPulls, &kPulls, &kPushes, &kLeaves};
      wave = waves[random() % 5];
    }
    const size_t server = random() % servers.size();
    Oracle& oracle = *servers[server];
    Step step = drawn_step(oracle, workers, *wave, random);
    step.server = static_cast<int>(server);
    steps.push_back(step);
    if (step.operation == entries::kPull) oracle.pull(step.argument);
    if (step.operation == entries::kLeave) oracle.leave(step.argument);
    if (step.operation != entries::kPush) continue;
    std::vector<double> gradient;
    for (size_t i = 0; i < oracle.elements(); ++i)
      gradient.push_back(
          step.samples > 0 ? entries::scripted(step.argument, static_cast<int64_t>(i)) : 0.0);
    oracle.push(step.argument, step.samples, gradient);
  }
  return steps;
}

}  // namespace

Drawn drawn_server(std::mt19937_64& random, int steps, int64_t elements) {
  const auto one_of = [&](const std::vector<int64_t>& values) {
    return values[random() % values.size()];
  };
  const bool crowd = steps > 100;
  const int64_t n = one_of({1, 1, 2, 2, 3, 4, 5, 9, crowd ? 150 : 7});
  const int64_t s = one_of({0, 1, 1, 2, 3, 5, 40, kUnbounded});
  std::vector<int64_t> workers{0, 1, 2, 3, 4, 5};
  if (random() % 2 == 0) workers = {3, 19, 67, 131, 1027, 65'539};
  workers.resize(1 + random() % 6);
  for (int64_t w = 0; crowd && w < 90; ++w) workers.push_back(200 + w);
  State start;
  start.sum.assign(static_cast<size_t>(elements), 0.0);
  start.version = one_of({0, 0, 0, 40, (int64_t{1} << 31) - 2, int64_t{1} << 33});
  start.next_item = n * start.version;
  start.next_ticket = start.next_item + one_of({0, 0, 37, 290});
  const int64_t items = start.next_item + n * (3 + static_cast<int64_t>(random() % 8) + steps / n);
  Oracle server(n, s, items, start);
  drawn_steps({&server}, workers, steps, random);
  return {server, workers};
}

Script drawn_script(uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr int64_t kSizes[] = {3, 3, 3, 1, 2, 64, 65, 1031};
  constexpr int kPasts[] = {0, 0, 30, 300};
  const int64_t elements = kSizes[random() % 8];
  const Drawn drawn = drawn_server(random, kPasts[random() % 4], elements);
  Script script{.name = fmt::format("drawn, number {}", seed),
                .n = drawn.server.n(),
                .s = drawn.server.s(),
                .items = drawn.server.items(),
                .servers = random() % 4 == 0 ? 2 : 1,
                .start = drawn.server.state()};
  for (double& value : script.start.sum) value = static_cast<float>(value);
  std::vector<Oracle> oracles(static_cast<size_t>(script.servers), drawn.server);
  std::vector<Oracle*> servers;
  for (Oracle& oracle : oracles) servers.push_back(&oracle);
  script.steps = drawn_steps(servers, drawn.workers, 90, random);
  return script;
}

std::vector<Script> drawn_scripts(uint64_t first_seed, size_t count) {
  std::vector<Script> scripts;
  for (uint64_t k = 0; k < count; ++k) scripts.push_back(drawn_script(first_seed + k));
  return scripts;
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
    input.set("diverged", static_cast<double>(script.diverged));
    std::vector<double> start;
    write_state(script.start, start);
    input.set("start", start);
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
                                Oracle(script.n, script.s, script.items, script.start));
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
