// Starting ranks and waiting for them.
#include "tests/grading/rank_harness.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "common/comm/diagnosis/diagnosis.h"
#include "common/comm/store/tcp_store.h"
#include "common/error.h"
#include "common/run/launch/child_process.h"
#include "common/run/rendezvous/rank_environment.h"
#include "common/run/watch/judge.h"
#include "tests/grading/rank_files.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/scratch_folder.h"

namespace lab::grading {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

std::optional<int> debug_rank() {
  const char* rank = std::getenv("LAB_DEBUG_RANK");
  return rank == nullptr ? std::nullopt : std::optional(std::atoi(rank));
}

/// What the processes of one job share.
struct Scene {
  explicit Scene(const RankJob& ranks) : job(ranks) {
    if (job.network != Network::kGloo) return;
    server.emplace("127.0.0.1", uint16_t{0});
    judge.emplace(server->store(), static_cast<int>(job.inputs.size()),
                  [this](int rank) { return fate_of_child(*children[static_cast<size_t>(rank)]); });
  }

  const RankJob& job;
  ScratchFolder folder;
  std::optional<TcpStoreServer> server;
  std::vector<std::unique_ptr<ChildProcess>> children;
  std::optional<Judge> judge;
};

int threads_per_rank(const RankJob& job) {
  if (job.threads > 0) return job.threads;
  if (job.network == Network::kSimulated) return 1;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / static_cast<int>(job.inputs.size()));
}

std::map<std::string, std::string> environment_of(const Scene& scene, int rank) {
  std::map<std::string, std::string> environment{
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(scene.job.inputs.size())},
      {"OMP_NUM_THREADS", std::to_string(threads_per_rank(scene.job))},
      // Threads that wait in a loop instead of sleeping make a loaded machine 15 times slower.
      {"OMP_WAIT_POLICY", "PASSIVE"},
      {"GOMP_SPINCOUNT", "0"},  // it might be set for other programs, and would overrule the policy
      // New memory is otherwise 0 most of the time, and whoever forgets to write it is right by
      // chance. Bytes of 0xfe make floats of -1.7e38.
      {"MALLOC_PERTURB_", "1"},
      {kSimpleProductsVariable, kSimpleProducts}};
  if (scene.server)
    environment.insert({{"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", std::to_string(scene.server->port())},
                        {kStoreServedVariable, "1"}});
  return environment;
}

std::unique_ptr<ChildProcess> start(const Scene& scene, int rank) {
  const RankJob& job = scene.job;
  const fs::path& folder = scene.folder.path();
  std::vector<std::string> command{job.program, "--scenario", job.scenario};
  if (!job.implementation.empty())
    command.insert(command.end(), {"--implementation", job.implementation});
  if (!job.given.empty())
    command.insert(command.end(), {"--given", fmt::format("{}", fmt::join(job.given, ","))});
  if (job.network == Network::kSimulated)
    command.insert(command.end(),
                   {"--in", folder, "--out", folder, "--simulate", to_text(job.simulation)});
  else
    command.insert(command.end(), {"--in", rank_input_file(folder, rank), "--out",
                                   rank_result_file(folder, rank)});
  const std::map<std::string, std::string> environment = environment_of(scene, rank);
  const fs::path own = job.network == Network::kSimulated ? folder : rank_folder(folder, rank);
  const bool debugged = debug_rank() == rank;
  if (debugged) command.emplace_back("--wait-for-debugger");
  auto child = std::make_unique<ChildProcess>(in_sandbox(own, command), environment);
  if (debugged)
    fmt::print(stderr,
               "rank {} waits for a debugger. In another terminal:\n  gdb -p {}\nand there: "
               "continue. Ctrl-C here ends the test.\n",
               rank, child->pid());
  return child;
}

bool succeeded(const ChildProcess& child) {
  return WIFEXITED(child.wait_status()) && WEXITSTATUS(child.wait_status()) == 0;
}

/// Processor time that the running processes of a group have used. (In a sandbox, the rank is not
/// the process that was started, and is killed with it.)
double cpu_seconds_of_group(pid_t group) {
  double ticks = 0;
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    std::ifstream file(process.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string word;
    for (int field = 3; fields >> word; ++field) {  // numbers as in proc(5)
      constexpr int kGroup = 5;
      constexpr int kUserTime = 14;
      constexpr int kSystemTime = 15;
      if (field == kGroup && word != std::to_string(group)) break;
      if (field == kUserTime || field == kSystemTime) ticks += std::stod(word);
      if (field == kSystemTime) break;
    }
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Returns when no process runs any more. Marks the ranks of those that had to be ended, and
/// explains a job that can never go on.
void wait_for_all(Scene& scene, std::vector<RankResult>& results) {
  constexpr double kBetweenLooks = 0.1;  // seconds
  const RankJob& job = scene.job;
  const bool debugging = debug_rank().has_value();
  const Clock::time_point begin = Clock::now();
  double deadline_s = job.deadline_s;
  double next_look_s = 0.3;  // most jobs are done by then
  Outcome reason = Outcome::kDeadline;
  std::optional<Diagnosis> diagnosis;
  while (true) {
    std::vector<pollfd> waiting;
    bool any_running = false;
    bool any_failed = false;
    const double now_s = std::chrono::duration<double>(Clock::now() - begin).count();
    for (size_t i = 0; i < scene.children.size(); ++i) {
      ChildProcess& child = *scene.children[i];
      child.read_output();
      if (!child.running()) {
        any_failed = any_failed || !succeeded(child);
        continue;
      }
      results[i].ended_after_s = now_s;
      any_running = true;
      if (child.output_descriptor() >= 0) waiting.push_back({child.output_descriptor(), POLLIN, 0});
    }
    if (!any_running) return;
    if (any_failed && reason == Outcome::kDeadline && now_s + job.grace_s < deadline_s) {
      reason = Outcome::kEnded;
      deadline_s = now_s + job.grace_s;
    }
    if (scene.judge && !any_failed && !debugging && now_s > next_look_s) {
      next_look_s = now_s + kBetweenLooks;
      diagnosis = scene.judge->look();
    }
    if (diagnosis || (now_s > deadline_s && !debugging)) break;
    poll(waiting.data(), waiting.size(), kPollMilliseconds);
  }
  for (size_t i = 0; i < scene.children.size(); ++i) {
    if (!scene.children[i]->running()) continue;
    results[i].outcome = diagnosis ? Outcome::kDiagnosed : reason;
    if (diagnosis) results[i].message = diagnosis->text();
    results[i].cpu_s = cpu_seconds_of_group(scene.children[i]->pid());
    scene.children[i]->end();
  }
}

/// What a rank that crashed or was ended had returned of a sequence of calls.
void keep_results(const fs::path& file, RankResult& result) {
  if (fs::exists(file)) try {
      result.result = Parcel::read(file);
    } catch (const Error&) {  // the rank's code may have damaged it
    }
}

/// Whom the message is about where "rank 0" would say nothing: in a job without ranks, or where
/// nobody can tell which rank it was.
void tell_of(const char* whom, RankResult& result) {
  const std::string rank = fmt::format("rank {}", result.rank);
  if (result.message.starts_with(rank)) result.message.replace(0, rank.size(), whom);
}

/// Fills in what became of a rank that had its own process.
void tell_rank(Scene& scene, RankResult& result) {
  ChildProcess& child = *scene.children[static_cast<size_t>(result.rank)];
  result.output = child.output();
  result.cpu_s = std::max(result.cpu_s, child.cpu_seconds());
  if (result.outcome == Outcome::kDeadline)
    tell_deadline(scene.job.deadline_s, result);
  else if (result.outcome == Outcome::kEnded)
    result.message = fmt::format("rank {} was ended because another rank had failed", result.rank);
  const fs::path file = rank_result_file(scene.folder.path(), result.rank);
  if (result.outcome == Outcome::kReturned) describe_end(child, file, result);
  if (result.result.empty()) keep_results(file, result);
  if (scene.job.network == Network::kNone && scene.job.inputs.size() == 1)
    tell_of("your code", result);
}

/// Explains the ranks whose messages broke off: they waited for one that is gone.
void explain_broken_off(Scene& scene, std::vector<RankResult>& results) {
  std::vector<RankSnapshot> ranks = scene.judge->read();
  for (const RankResult& result : results)
    if (result.outcome == Outcome::kBrokenOff) {  // it has ended as well, but of that
      ranks[static_cast<size_t>(result.rank)].fate = RankFate::kRunning;
      ranks[static_cast<size_t>(result.rank)].left = false;
    }
  const std::optional<Diagnosis> diagnosis = diagnose(ranks, ranks);
  if (!diagnosis) return;
  for (RankResult& result : results)
    if (result.outcome == Outcome::kBrokenOff) {
      result.outcome = Outcome::kDiagnosed;
      result.message = diagnosis->text();
    }
}

/// Fills in what became of all ranks, which one process has simulated.
void tell_simulation(Scene& scene, std::vector<RankResult>& results) {
  const Outcome outcome = results[0].outcome;
  const double cpu_s = std::max(results[0].cpu_s, scene.children[0]->cpu_seconds());
  for (RankResult& result : results) {
    result.outcome = outcome;
    result.output = scene.children[0]->output();
    result.cpu_s = cpu_s;
    if (outcome == Outcome::kDeadline)
      tell_deadline(scene.job.deadline_s, result);
    else
      describe_end(*scene.children[0], rank_result_file(scene.folder.path(), result.rank), result);
    if (result.result.empty())
      keep_results(rank_result_file(scene.folder.path(), result.rank), result);
    if (result.outcome == Outcome::kCrash) tell_of("one of the simulated ranks", result);
  }
}

}  // namespace

std::vector<std::string> in_sandbox(const fs::path& folder, std::vector<std::string> command) {
  if (const char* sandbox = std::getenv("LAB_SANDBOX"))
    command.insert(command.begin(), {sandbox, folder});
  return command;
}

std::vector<RankResult> run_ranks(const RankJob& job) {
  Scene scene(job);
  const bool simulated = job.network == Network::kSimulated;
  const auto ranks = static_cast<int>(job.inputs.size());
  std::vector<RankResult> results(job.inputs.size());
  for (int rank = 0; rank < ranks; ++rank) {
    results[static_cast<size_t>(rank)].rank = rank;
    fs::create_directory(rank_folder(scene.folder.path(), rank));
    job.inputs[static_cast<size_t>(rank)].write(rank_input_file(scene.folder.path(), rank));
  }
  for (int rank = 0; rank < (simulated ? 1 : ranks); ++rank)
    scene.children.push_back(start(scene, rank));

  wait_for_all(scene, results);

  if (simulated) {
    tell_simulation(scene, results);
  } else {
    for (RankResult& result : results) tell_rank(scene, result);
    if (scene.judge) explain_broken_off(scene, results);
  }
  return results;
}

bool had_the_processors(const std::vector<RankResult>& results, const RankJob& job) {
  const double enough_s = 0.9 * job.deadline_s;
  double all_s = 0;
  for (const RankResult& rank : results) {
    if (rank.cpu_s > enough_s) return true;
    all_s += rank.cpu_s;
  }
  // Simulated ranks are one process, whose time each of them has.
  return job.network != Network::kSimulated &&
         all_s > enough_s * std::max(1U, std::thread::hardware_concurrency());
}

std::vector<RankResult> run_ranks_patiently(const RankJob& job) {
  std::vector<RankResult> results = run_ranks(job);
  const bool late = std::ranges::any_of(
      results, [](const RankResult& rank) { return rank.outcome == Outcome::kDeadline; });
  if (!late || had_the_processors(results, job)) return results;
  RankJob again = job;
  again.deadline_s *= kPatience;
  return run_ranks(again);
}

}  // namespace lab::grading
