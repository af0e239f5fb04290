// Lab 11 · the options about workers. Given.
#include "labs/11_parameter_server/main_workers.h"

#include <fmt/format.h>

#include <sstream>

#include "common/error.h"
#include "common/parse_number.h"
#include "labs/11_parameter_server/parameter_server.h"

namespace lab11 {

using lab::UsageError;

namespace {

constexpr int64_t kMostWorkers = 64;

double number(const std::string& option, const std::string& text) {
  const auto value = lab::parse_number<double>(text);
  if (!value || !(*value >= 0) || *value > 1e9)
    throw UsageError(fmt::format("{}: '{}' is not a number of at least 0", option, text));
  return *value;
}

struct Pair {
  int worker = 0;
  double value = 0;
};

/// "1:3,2:5" with ':' as separator.
std::vector<Pair> pairs(const std::string& option, const std::string& text, char separator) {
  std::vector<Pair> all;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t at = word.find(separator);
    if (at == std::string::npos)
      throw UsageError(fmt::format("{} {}: expected WORKER{}NUMBER", option, word, separator));
    const double worker = number(option, word.substr(0, at));
    if (worker != static_cast<int>(worker) || worker >= kMostWorkers)
      throw UsageError(
          fmt::format("{} {}: workers have numbers from 0 to {}", option, word, kMostWorkers - 1));
    all.push_back({static_cast<int>(worker), number(option, word.substr(at + 1))});
  }
  return all;
}

}  // namespace

int64_t Workers::bound() const {
  if (staleness == "any") return kUnbounded;
  const double bound = number("--staleness", staleness);
  if (bound != static_cast<double>(static_cast<int64_t>(bound)))
    throw UsageError("--staleness is a whole number of updates, or any");
  return static_cast<int64_t>(bound);
}

std::map<int, double> Workers::slowness() const {
  std::map<int, double> factors;
  for (const Pair& pair : pairs("--slow", slow, ':')) {
    if (pair.value <= 0) throw UsageError("--slow: the factor must be more than 0");
    factors[pair.worker] = pair.value;
  }
  return factors;
}

std::vector<lab::SimulatedWorker> Workers::schedule() const {
  std::map<int, double> factors = slowness();
  const auto life = [&](int worker, double begins_at) {
    const double compute_s = factors.contains(worker) ? factors[worker] : 1.0;
    return lab::SimulatedWorker{.number = worker, .compute_s = compute_s, .begins_at = begins_at};
  };
  std::vector<lab::SimulatedWorker> lives;
  for (int worker = 0; worker < count; ++worker) lives.push_back(life(worker, 0));
  for (const Pair& pair : pairs("--kill", kill, '@')) {
    if (pair.worker >= count)
      throw UsageError(fmt::format("--kill {}: there are workers 0 to {}", pair.worker, count - 1));
    lives[static_cast<size_t>(pair.worker)].killed_at = pair.value;
  }
  for (const Pair& pair : pairs("--join", join, '@')) {
    if (pair.worker < count && pair.value < lives[static_cast<size_t>(pair.worker)].killed_at)
      throw UsageError(fmt::format("--join {}@{:g}: this worker still runs then; kill it before",
                                   pair.worker, pair.value));
    lives.push_back(life(pair.worker, pair.value));
  }
  return lives;
}

void add_worker_options(lab::CommandLine& line, Workers& workers) {
  line.group("Workers");
  line.add("--workers", workers.count, "W", "number of workers at the start")
      .within(1, kMostWorkers)
      .shows_default()
      .carried();
  line.add(
          "--gradients", workers.gradients, "N",
          "gradients per update (n); default: one per worker; 1 with --staleness any: asynchronous")
      .within(0, 1'000'000)
      .kept();
  line.add("--staleness", workers.staleness, "S", "the bound s in updates, or any")
      .shows_default()
      .carried();
  line.add("--slow", workers.slow, "W:F,...", "worker W takes F times as long").carried();
  line.add("--kill", workers.kill, "W@T,...", "worker W is killed after T seconds").not_in_file();
  line.add("--join", workers.join, "W@T,...", "worker W joins (or returns) after T seconds")
      .not_in_file();
  line.add_flag("--server", workers.server,
                "real processes over TCP: this one is the server, and starts the workers")
      .not_in_file();
  line.add("--bind", workers.bind, "ADDRESS", "where the server listens")
      .shows_default()
      .not_in_file();
  line.add("--work-for", workers.work_for, "ADDRESS:PORT",
           "be a worker of the server at this address; give the server's other options")
      .not_in_file();
  line.add("--worker", workers.own_number, "W", "its number; default: the next free one")
      .within(0, kMostWorkers - 1)
      .not_in_file();
  line.add("--pace", workers.pace, "F", "this worker takes F times as long").not_in_file();
  line.add("--patience", workers.patience, "S",
           "a worker that computes for longer than S seconds without a word counts as dead")
      .shows_default()
      .not_in_file();
  line.add("--jitter", workers.jitter, "F",
           "in simulated time: a computation takes up to this fraction longer")
      .shows_default()
      .carried();
  line.add("--lost", workers.lost, "P",
           "in simulated time: the probability that a message is lost; workers ask again after 4 s")
      .shows_default()
      .carried();
  line.add("--link", workers.link, "A,B",
           "in simulated time: a message takes A us, and B ns per byte; default: 0,0")
      .comma_separated(2, 2)
      .carried();
}

void settle(const Workers& workers, lab::RunPlan& plan) {
  const int64_t n = workers.gradients > 0 ? workers.gradients : workers.count;
  if (plan.accumulate != 1 && plan.accumulate != n)
    throw UsageError("--accumulate: use --gradients, since each gradient is one microbatch");
  plan.accumulate = n;
  if (!workers.work_for.empty()) plan.out.clear();  // the server's; a worker writes nothing
  workers.bound();
  workers.schedule();
  if (workers.jitter < 0 || workers.link[0] < 0 || workers.link[1] < 0)
    throw UsageError("--jitter and --link must not be negative");
  if (workers.patience <= 0) throw UsageError("--patience must be more than 0 seconds");
  if (workers.lost < 0 || workers.lost > 0.9) throw UsageError("--lost must be from 0 to 0.9");
}

}  // namespace lab11
