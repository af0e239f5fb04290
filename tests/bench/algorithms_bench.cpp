// Lab 07's all-reduces against Gloo's own, side by side in one run: times, bus bandwidths, and from
// which size on the ring is faster than doubling, predicted and measured.
//
// All are called in turn, round by round, so that what else the machine does hits all of them; the
// times are medians over the rounds. alpha and beta come from a step of the ring alone: every rank
// sends to the next and receives from the previous, once 4 bytes, once 4 MiB.
#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string>

#include "common/format.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "labs/07_allreduce/algorithms.h"
#include "tests/bench/raw_gloo.h"
#include "tests/bench/rounds.h"

namespace {

using namespace lab;
using lab07::Algorithm;
using lab07::kAlgorithms;

constexpr size_t kGloo = kAlgorithms;  // the last column

/// Medians by column, in s, of an all-reduce of `bytes` bytes.
std::vector<double> measure(ProcessGroup& world, lab07::Hosts& hosts, bench::RawGloo& gloo,
                            int64_t bytes, int repeats) {
  const int64_t count = bytes / 4;
  const Tensor tensor = Tensor::zeros({count});
  std::vector<float> data(static_cast<size_t>(count));
  std::vector<std::vector<double>> times(kAlgorithms + 1);
  for (int round = -1; round < repeats; ++round)  // one to warm up
    for (size_t i = 0; i < times.size(); ++i) {
      const double time = bench::seconds(world, [&] {
        if (i == kGloo) return gloo.all_reduce(data);
        lab07::all_reduce(static_cast<Algorithm>(i), tensor, ReduceOp::kSum, world, &hosts);
      });
      if (round >= 0) times[i].push_back(time);
    }
  std::vector<double> medians;
  for (std::vector<double>& column : times) medians.push_back(bench::median(column));
  return medians;
}

/// The median time of a step of the ring.
double ring_step(ProcessGroup& world, int64_t bytes, int repeats) {
  const int n = world.size();
  const Tensor outgoing = Tensor::zeros({bytes / 4});
  const Tensor incoming = Tensor::zeros({bytes / 4});
  std::vector<double> times;
  for (int round = -1; round < repeats; ++round) {
    constexpr int kSteps = 8;
    const double time = bench::seconds(world, [&] {
      for (int step = 0; step < kSteps; ++step) {
        Work sent = world.isend(outgoing, (world.rank() + 1) % n);
        world.recv(incoming, (world.rank() + n - 1) % n);
        sent.wait();
      }
    });
    if (round >= 0) times.push_back(time / kSteps);
  }
  return bench::median(times);
}

/// The time of an addition, alone.
double addition(ProcessGroup& world, int repeats) {
  constexpr int64_t kCount = 1 << 20;
  const Tensor into = Tensor::zeros({kCount});
  const Tensor from = Tensor::zeros({kCount});
  std::vector<double> times;
  for (int round = -1; round < repeats; ++round) {
    const double time = bench::seconds(world, [&] { combine(world, into, from, ReduceOp::kSum); });
    if (round >= 0) times.push_back(time / kCount);
  }
  return bench::median(times);
}

struct Row {
  int64_t bytes = 0;
  std::vector<double> seconds;
};

/// Where the measured curves cross, between the last size at which doubling is faster and the next:
/// straight lines between the logarithms. Empty if they do not.
std::optional<double> crossover(const std::vector<Row>& rows) {
  const auto lead = [](const Row& row) {  // of the ring
    return std::log(row.seconds[static_cast<size_t>(Algorithm::kDoubling)] /
                    row.seconds[static_cast<size_t>(Algorithm::kRing)]);
  };
  for (size_t i = rows.size() - 1; i > 0; --i) {
    const double before = lead(rows[i - 1]);
    const double after = lead(rows[i]);
    if (before > 0 || after <= 0) continue;
    const double ratio =
        static_cast<double>(rows[i].bytes) / static_cast<double>(rows[i - 1].bytes);
    return static_cast<double>(rows[i - 1].bytes) * std::pow(ratio, -before / (after - before));
  }
  return std::nullopt;
}

std::string in_kilobytes(const std::optional<double>& bytes) {
  return bytes ? fmt::format("{:.1f} kB", 1e-3 * *bytes) : "none";
}

/// The smallest tensor, in bytes, from which on the ring is faster by the formulas of the contract.
/// Empty if there is none between the two sizes.
std::optional<double> predicted_crossover(int64_t smallest, int64_t largest, int ranks,
                                          const CostModel& costs) {
  const auto ring_is_faster = [&](int64_t elements) {
    const lab07::Choice choice = lab07::choose(ranks, elements, costs);
    return choice.seconds[static_cast<size_t>(Algorithm::kRing)] <
           choice.seconds[static_cast<size_t>(Algorithm::kDoubling)];
  };
  int64_t slower = smallest / 4;
  int64_t faster = largest / 4;
  if (ring_is_faster(slower) || !ring_is_faster(faster)) return std::nullopt;
  while (faster - slower > 1) {
    const int64_t middle = (slower + faster) / 2;
    (ring_is_faster(middle) ? faster : slower) = middle;
  }
  return 4.0 * static_cast<double>(faster);
}

void print_header(int ranks) {
  fmt::print("{} ranks; times in ms\n{:>12}", ranks, "bytes");
  for (const char* name : lab07::kNames) fmt::print(" {:>12}", name);
  fmt::print(" {:>12} {:>10} {:>10} {:>14}\n", "Gloo", "ring GB/s", "ring/Gloo", "ring/doubling");
}

void print_row(const Row& row, int ranks) {
  const double ring = row.seconds[static_cast<size_t>(Algorithm::kRing)];
  fmt::print("{:>12}", format_count(row.bytes));
  for (const double time : row.seconds) fmt::print(" {:>12.3f}", 1e3 * time);
  // Bandwidth: the more, the better; time: the less.
  fmt::print(" {:>10.2f} {:>10.2f} {:>14.2f}\n",
             1e-9 * static_cast<double>(row.bytes) / ring * 2 * (ranks - 1) / ranks,
             row.seconds[kGloo] / ring,
             ring / row.seconds[static_cast<size_t>(Algorithm::kDoubling)]);
  std::fflush(stdout);
}

int bench_algorithms(int argc, char** argv) {
  CommandLine app("Times lab 07's all-reduces and Gloo's own, side by side.");
  LaunchOptions launch;
  int64_t smallest = 4096;
  int64_t largest = int64_t{64} << 20;
  int hosts_count = 1;
  int repeats = 21;
  add_launch_options(app, launch);
  app.add("--smallest", smallest, "", "Bytes of the smallest tensor")
      .within(4, int64_t{1} << 30)
      .shows_default();
  app.add("--largest", largest, "", "Bytes of the largest tensor").shows_default();
  app.add("--hosts", hosts_count, "", "Of the hierarchical all-reduce").shows_default();
  app.add("--repeats", repeats, "", "Calls timed per size").shows_default();
  app.read(argc, argv);
  if (is_launcher(launch)) return launch_ranks(launch, argc, argv);

  Job job(read_rank_environment(launch));
  ProcessGroup& world = job.world();
  const int ranks = world.size();
  require(ranks > 1, "one rank has nobody to talk to: --ranks 2 or more");
  require(ranks % hosts_count == 0, "--hosts {}: {} ranks cannot be divided equally", hosts_count,
          ranks);
  bench::RawGloo gloo(job);
  lab07::Hosts hosts = lab07::make_hosts(world, ranks / hosts_count);

  constexpr int64_t kLong = 4 << 20;
  const double alpha = ring_step(world, 4, 5 * repeats);
  const double beta = (ring_step(world, kLong, repeats) - alpha) / kLong;
  const CostModel costs{.inside = {.alpha = alpha, .beta = beta},
                        .gamma = addition(world, repeats)};
  const bool tells = world.rank() == 0;
  if (tells) print_header(ranks);
  std::vector<Row> rows;
  for (int64_t bytes = smallest; bytes <= largest; bytes *= 4) {
    const int rounds = bytes < (1 << 20) ? 3 * repeats : repeats;
    rows.push_back({bytes, measure(world, hosts, gloo, bytes, rounds)});
    if (tells) print_row(rows.back(), ranks);
  }
  if (!tells) return 0;
  fmt::print("alpha {:.1f} us, beta {:.3f} ns per byte, gamma {:.3f} ns per element\n", 1e6 * alpha,
             1e9 * beta, 1e9 * costs.gamma);
  fmt::print("the ring is faster than doubling from {} on, predicted; {}, measured\n",
             in_kilobytes(predicted_crossover(smallest, largest, ranks, costs)),
             in_kilobytes(crossover(rows)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lab::run_main(argc, argv, bench_algorithms); }
