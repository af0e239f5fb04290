// Lab 11 · the tables of workers: during a run of real processes, and at the end. Given.
#include "labs/11_parameter_server/main_tables.h"

#include <fmt/format.h>

namespace lab11 {

std::vector<std::string> live_table(const Ledger& ledger, int64_t updates) {
  using Kind = WorkerState::Kind;
  std::vector<std::string> lines{fmt::format("{:<7} {:<9} {:>6} {:>10} {:>10} {:>11}", "worker",
                                             "state", "step", "staleness", "gradients",
                                             "per second")};
  for (const auto& [number, worker] : ledger.workers()) {
    const bool computes = worker.kind == Kind::kComputes;
    const bool is_gone = worker.kind == Kind::kGone;
    const double seconds = (is_gone ? worker.left_s : ledger.seconds()) - worker.joined_s;
    const double rate = seconds > 0 ? static_cast<double>(worker.of_this_life) / seconds : 0;
    lines.push_back(fmt::format("{:<7} {:<9} {:>6} {:>10} {:>10} {:>11.2f}", number,
                                computes  ? "computes"
                                : is_gone ? "gone"
                                          : "waits",
                                computes ? fmt::format("{}", worker.version) : "",
                                computes ? fmt::format("{}", updates - worker.version) : "",
                                worker.gradients, rate));
  }
  return lines;
}

std::string describe_workers(const std::map<int, int64_t>& gradients, double seconds,
                             const std::string& unit, int64_t stalest) {
  const auto row = [&](const auto& name, int64_t count) {
    return fmt::format("{:<10} {:>10} {:>14.3f}", name, count,
                       static_cast<double>(count) / seconds);
  };
  std::string text = fmt::format("\n{:<10} {:>10} {:>14}\n", "worker", "gradients", "per second");
  int64_t all = 0;
  for (const auto& [worker, count] : gradients) {
    all += count;
    text += row(worker, count) + "\n";
  }
  return text + row("all", all) +
         fmt::format("   in {:.1f} {}; largest staleness {}\n", seconds, unit, stalest);
}

}  // namespace lab11
