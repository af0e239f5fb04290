// Simulation: threads, network, recorders and the end of a job that cannot go on.
#include "common/comm/sim/simulation.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>

#include "common/comm/sim/scheduler.h"
#include "common/comm/sim/sim_network.h"
#include "common/comm/sim/sim_transport.h"
#include "common/error.h"

namespace lab {
namespace {

using Body = std::function<void(ProcessGroup&)>;

// No simulated wait uses it.
constexpr std::chrono::hours kTimeout{1};

void check(const SimulationOptions& options) {
  require(options.ranks >= 1 && options.ranks <= kMaxWorldSize,
          "simulation: {} ranks; it must be 1 to {}", options.ranks, kMaxWorldSize);
  require(options.max_delay >= 0, "simulation: max_delay is {}, below 0", options.max_delay);
  require(!options.costs ||
              (options.max_delay == 0 && options.buffered_bytes == 0 && !options.slow_link),
          "simulation: with a cost model, no message is buffered, delayed or on a slow link");
  if (!options.death) return;
  const int rank = options.death->rank;
  const int operation = options.death->operation;
  require(rank >= 0 && rank < options.ranks, "simulation: rank {} cannot die, there are {} ranks",
          rank, options.ranks);
  require(operation >= 1, "simulation: operations count from 1, not {}", operation);
}

// In case `diagnose` finds no cause.
Diagnosis list_waits(const std::vector<RankSnapshot>& ranks) {
  Diagnosis result;
  result.headline = "no rank can go on";
  for (const RankSnapshot& rank : ranks) {
    const OpRecord* operation = rank.waiting();
    if (operation == nullptr) continue;
    result.ranks.push_back(rank.rank);
    result.details += fmt::format("rank {} waits in {}\n", rank.rank, describe(*operation, rank));
  }
  return result;
}

class Simulation {
 public:
  Simulation(const SimulationOptions& options, const Body& body)
      : body_(body),
        scheduler_(options.ranks,
                   options.shuffle_ranks ? std::optional(options.seed) : std::nullopt,
                   [this] { go_on_or_stop(); }),
        network_(options, scheduler_),
        members_(static_cast<size_t>(options.ranks)),
        ends_(static_cast<size_t>(options.ranks)) {
    std::iota(members_.begin(), members_.end(), 0);
    report_.errors.resize(members_.size());
    for (int rank : members_)
      recorders_.push_back(
          std::make_unique<FlightRecorder>(rank, [this, rank] { return network_.now(rank); }));
  }

  SimulationReport run() {
    scheduler_.run([this](int rank) { run_rank(rank); });
    if (!report_.diagnosis) report_.snapshots = look();
    for (const auto& recorder : recorders_) report_.history.push_back(recorder->history());
    if (network_.clock() != nullptr) report_.times = times_by(*network_.clock());
    return std::move(report_);
  }

 private:
  void run_rank(int rank) {
    const auto index = static_cast<size_t>(rank);
    std::string& error = report_.errors[index];
    try {
      ProcessGroup world(std::make_shared<SimTransport>(network_, "world", members_, rank),
                         *recorders_[index], rank, static_cast<int>(members_.size()), kTimeout);
      body_(world);
    } catch (const RankStop& stop) {
      error = stop.why;
    } catch (const std::exception& exception) {
      error = exception.what();
      if (error.empty()) error = "an exception without a message";
    } catch (...) {
      error = "an exception of unknown type";
    }
    network_.end(rank);
    ends_[index] = network_.killed(rank) ? Fate{RankFate::kKilled, SIGKILL}
                                         : Fate{RankFate::kExited, error.empty() ? 0 : 1};
  }

  SimTimes times_by(const SimClock& clock) const {
    SimTimes times{.finish = {}, .exposed = {}, .traffic = clock.traffic()};
    for (int rank : members_) {
      times.finish.push_back(clock.now(rank));
      times.exposed.push_back(clock.now(rank) - clock.computed(rank));
      times.makespan = std::max(times.makespan, clock.now(rank));
    }
    return times;
  }

  // All ranks wait.
  void go_on_or_stop() {
    if (network_.deliver_next() || network_.break_off()) return;
    report_.snapshots = look();
    report_.diagnosis = diagnose(report_.snapshots, report_.snapshots);
    if (!report_.diagnosis) report_.diagnosis = list_waits(report_.snapshots);
    network_.stop(report_.diagnosis->headline);
  }

  std::vector<RankSnapshot> look() const {
    std::vector<RankSnapshot> result;
    for (size_t rank = 0; rank < recorders_.size(); ++rank) {
      RankSnapshot& snapshot = result.emplace_back(recorders_[rank]->snapshot());
      snapshot.fate = ends_[rank].fate;
      snapshot.status = ends_[rank].status;
      // Unwinding its stack has closed the group; a process would just have disappeared.
      if (snapshot.status != 0) snapshot.left = false;
    }
    return result;
  }

  const Body& body_;
  Scheduler scheduler_;
  SimNetwork network_;
  std::vector<int> members_;  // of the world: 0, 1, 2 ...
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::vector<Fate> ends_;  // how each rank's process would have ended
  SimulationReport report_;
};

}  // namespace

bool SimulationReport::succeeded() const {
  return !diagnosis && std::ranges::all_of(errors, &std::string::empty);
}

double SimTimes::bytes(int from, int to) const {
  double sum = 0;
  for (const SimTraffic& one : traffic)
    if (one.from == from && one.to == to) sum += one.bytes;
  return sum;
}

SimulationReport simulate(const SimulationOptions& options, const Body& body) {
  check(options);
  return Simulation(options, body).run();
}

}  // namespace lab
