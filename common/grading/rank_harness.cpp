// Starting ranks and waiting for them.
#include "common/grading/rank_harness.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "common/grading/child_process.h"
#include "common/grading/scratch_folder.h"
#include "common/tensor/error.h"

namespace lab::grading {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kPollMilliseconds = 5;

std::optional<int> debug_rank() {
  const char* rank = std::getenv("LAB_DEBUG_RANK");
  return rank == nullptr ? std::nullopt : std::optional(std::atoi(rank));
}

fs::path input_file(const fs::path& folder, size_t rank) {
  return folder / fmt::format("rank{}_in.safetensors", rank);
}

fs::path result_file(const fs::path& folder, size_t rank) {
  return folder / fmt::format("rank{}_out.safetensors", rank);
}

int threads_per_rank(const RankJob& job) {
  if (job.threads > 0) return job.threads;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / static_cast<int>(job.inputs.size()));
}

std::unique_ptr<ChildProcess> start(const RankJob& job, const fs::path& folder, size_t rank) {
  std::vector<std::string> command{job.program,
                                   "--scenario",
                                   job.scenario,
                                   "--in",
                                   input_file(folder, rank),
                                   "--out",
                                   result_file(folder, rank)};
  const std::map<std::string, std::string> environment{
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(job.inputs.size())},
      {"OMP_NUM_THREADS", std::to_string(threads_per_rank(job))},
      // Threads that wait in a loop instead of sleeping make a loaded machine 15 times slower.
      {"OMP_WAIT_POLICY", "PASSIVE"}};
  const std::string by_hand = fmt::format("{}", fmt::join(command, " "));
  const bool debugged = debug_rank() == static_cast<int>(rank);
  if (debugged) command.emplace_back("--wait-for-debugger");
  auto child = std::make_unique<ChildProcess>(command, environment);
  if (debugged)
    fmt::print(stderr,
               "rank {} waits for a debugger. In another terminal:\n  gdb -p {}\n"
               "or, with the same input, from its beginning:\n"
               "  RANK={} LOCAL_RANK={} WORLD_SIZE={} gdb --args {}\nCtrl-C ends the test.\n",
               rank, child->pid(), rank, rank, job.inputs.size(), by_hand);
  return child;
}

bool succeeded(const ChildProcess& child) {
  return WIFEXITED(child.wait_status()) && WEXITSTATUS(child.wait_status()) == 0;
}

/// Returns when no rank runs any more. Marks those that had to be ended.
void wait_for_all(const RankJob& job, std::vector<std::unique_ptr<ChildProcess>>& children,
                  std::vector<RankResult>& results) {
  const bool debugging = debug_rank().has_value();
  const Clock::time_point begin = Clock::now();
  double deadline_s = job.deadline_s;
  Outcome reason = Outcome::kDeadline;
  while (true) {
    std::vector<pollfd> waiting;
    bool any_running = false;
    bool any_failed = false;
    const double now_s = std::chrono::duration<double>(Clock::now() - begin).count();
    for (size_t rank = 0; rank < children.size(); ++rank) {
      ChildProcess& child = *children[rank];
      child.read_output();
      if (!child.running()) {
        any_failed = any_failed || !succeeded(child);
        continue;
      }
      results[rank].ended_after_s = now_s;
      any_running = true;
      if (child.output_descriptor() >= 0) waiting.push_back({child.output_descriptor(), POLLIN, 0});
    }
    if (!any_running) return;
    if (any_failed && reason == Outcome::kDeadline && now_s + job.grace_s < deadline_s) {
      reason = Outcome::kEnded;
      deadline_s = now_s + job.grace_s;
    }
    if (now_s > deadline_s && !debugging) break;
    poll(waiting.data(), waiting.size(), kPollMilliseconds);
  }
  for (size_t rank = 0; rank < children.size(); ++rank) {
    if (!children[rank]->running()) continue;
    results[rank].outcome = reason;
    children[rank]->end();
  }
}

}  // namespace

std::vector<RankResult> run_ranks(const RankJob& job) {
  const ScratchFolder folder;
  std::vector<RankResult> results(job.inputs.size());
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (size_t rank = 0; rank < job.inputs.size(); ++rank) {
    results[rank].rank = static_cast<int>(rank);
    job.inputs[rank].write(input_file(folder.path(), rank));
  }
  for (size_t rank = 0; rank < job.inputs.size(); ++rank)
    children.push_back(start(job, folder.path(), rank));

  wait_for_all(job, children, results);

  for (size_t rank = 0; rank < children.size(); ++rank) {
    RankResult& result = results[rank];
    result.output = children[rank]->output();
    if (result.outcome == Outcome::kReturned)
      tell_end(*children[rank], result_file(folder.path(), rank), result);
    else if (result.outcome == Outcome::kDeadline)
      tell_deadline(*children[rank], job.deadline_s, result);
    else
      result.message = fmt::format("rank {} was ended, since another rank had failed", rank);
  }
  return results;
}

}  // namespace lab::grading
