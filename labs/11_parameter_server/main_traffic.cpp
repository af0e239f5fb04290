// Lab 11 · --traffic: one step's messages in simulated time. Given.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/comm/sim/simulation.h"
#include "common/error.h"
#include "labs/11_parameter_server/main_simulation.h"
#include "labs/11_parameter_server/parameter_server.h"

namespace lab11 {

using namespace lab;

namespace {

constexpr int64_t kElements = 1 << 20;

double run(int ranks, const LinkCost& link, const std::function<void(ProcessGroup&)>& body) {
  const SimulationReport report =
      lab::simulate({.ranks = ranks, .costs = CostModel{.inside = link, .between = link}}, body);
  for (const std::string& error : report.errors) require(error.empty(), "{}", error);
  return std::max(0.0, report.times->makespan - 1e-9);  // clocks begin at 1 ns
}

/// Workers 0 ... w - 1, then the servers. In round r, worker i and server (i + r) mod m exchange a
/// message, so that no machine handles two at a time.
double simulated_servers(int workers, int servers, const LinkCost& link) {
  return run(workers + servers, link, [&](ProcessGroup& world) {
    const int rounds = std::max(workers, servers);
    const bool is_server = world.rank() >= workers;
    const Tensor part = Tensor::zeros({kElements / servers});
    for (const bool pull : {true, false})
      for (int round = 0; round < rounds; ++round) {
        const int peer = is_server ? (world.rank() - workers - round + rounds) % rounds
                                   : (world.rank() + round) % rounds;
        if (peer >= (is_server ? workers : servers)) continue;
        if (is_server == pull)
          world.send(part, is_server ? peer : workers + peer);
        else
          world.recv(part, is_server ? peer : workers + peer);
      }
  });
}

double simulated_ring(int workers, const LinkCost& link) {
  return run(workers, link,
             [&](ProcessGroup& world) { world.all_reduce(Tensor::zeros({kElements})); });
}

}  // namespace

int show_traffic(const Workers& workers) {
  constexpr double kBytes = 4.0 * kElements;
  const LinkCost link{.alpha = 1e-6 * workers.link[0], .beta = 1e-9 * workers.link[1]};
  const int n = workers.count;
  fmt::print("{} workers, 2^20 weights ({:.1f} MB), messages of {:g} us + {:g} ns per byte\n\n", n,
             kBytes / 1e6, workers.link[0], workers.link[1]);
  fmt::print("{:<12} {:>14} {:>14} {:>22}\n", "", "predicted ms", "simulated ms",
             "MB out of one server");
  for (int servers = 1; servers <= n; ++servers)
    fmt::print("{:<12} {:>14.3f} {:>14.3f} {:>22.2f}\n",
               fmt::format("{} server{}", servers, servers > 1 ? "s" : ""),
               1e3 * server_seconds(n, servers, kBytes, link),
               1e3 * simulated_servers(n, servers, link), n * kBytes / servers / 1e6);
  fmt::print("{:<12} {:>14.3f} {:>14.3f} {:>22}\n", "ring", 1e3 * ring_seconds(n, kBytes, link),
             1e3 * simulated_ring(n, link), "-");
  return 0;
}

}  // namespace lab11
