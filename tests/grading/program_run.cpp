// Starting a lab's program, and reading the losses that it wrote.
#include "tests/grading/program_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/run/launch/child_process.h"
#include "common/run/options/run_plan.h"
#include "tests/grading/quoted.h"
#include "tests/grading/rank_harness.h"
#include "tests/grading/scratch_folder.h"
#include "tests/grading/verdict.h"
#include "tests/grading/verdict_session.h"

namespace lab::grading {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kDeadlineS =
    60;  // a run takes a second or two; the launcher ends deadlocks itself
// Sums over ranks may be made in another order; over a few steps of training that grows.
constexpr double kTolerance = 1e-4;

fs::path program() {
  return settings().programs / fmt::format("lab{}_rehearsal", settings().points.number);
}

/// The first of the sample corpus: enough to train on for some steps, and quickly read.
fs::path few_stories(const fs::path& folder) {
  constexpr size_t kBytes = 30'000;
  constexpr std::string_view kEndOfStory = "<|endoftext|>\n";
  std::string text(kBytes, ' ');
  std::ifstream(source_folder() / "data/stories.txt").read(text.data(), kBytes);
  text.resize(text.rfind(kEndOfStory) + kEndOfStory.size());
  std::ofstream(folder / "stories.txt") << text;
  return folder / "stories.txt";
}

struct Run {
  bool succeeded = false;
  std::string output;
  std::vector<double> losses = {};
};

Run run_program(const fs::path& implementation, const std::vector<std::string>& options) {
  const ScratchFolder folder;
  const fs::path out = folder.path() / "run";
  // The functions of the lab's rehearsal.cpp, if there is one, come before the implementation's.
  const fs::path fixed = implementation.parent_path() / "rehearsal.so";
  const std::string preload =
      (fs::exists(fixed) ? fixed.string() + ":" : "") + implementation.string();
  // Set by env, so that a sandbox does not load the implementation itself.
  std::vector<std::string> command{"/usr/bin/env",
                                   "LD_PRELOAD=" + preload,
                                   program(),
                                   "--out",
                                   out,
                                   "--cache",
                                   folder.path() / "cache",
                                   "--dim",
                                   "24",
                                   "--heads",
                                   "2",
                                   "--layers",
                                   "3",
                                   "--context",
                                   "16",
                                   "--threads",
                                   "1",
                                   "--story-tokens",
                                   "0",
                                   "--validate-every",
                                   "0",
                                   "--validation-batches",
                                   "1",
                                   "--checkpoint-every",
                                   "0",
                                   "--data",
                                   few_stories(folder.path())};
  command.insert(command.end(), options.begin(), options.end());
  ChildProcess child(in_sandbox(folder.path(), command),
                     {{"OMP_WAIT_POLICY", "PASSIVE"},
                      {"GOMP_SPINCOUNT", "0"},
                      // AddressSanitizer would refuse to be loaded after LD_PRELOAD's.
                      {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
  const Clock::time_point begin = Clock::now();
  bool late = false;
  while (child.running() && !late) {
    child.read_output();
    pollfd waiting{child.output_descriptor(), POLLIN, 0};
    poll(&waiting, 1, kPollMilliseconds);
    late = std::chrono::duration<double>(Clock::now() - begin).count() > kDeadlineS;
  }
  child.end();
  child.read_output();
  Run run{.output = child.output()};
  if (late) run.output += fmt::format("\nstill running after {:g} s", kDeadlineS);
  run.succeeded = !late && WIFEXITED(child.wait_status()) && WEXITSTATUS(child.wait_status()) == 0;
  std::ifstream metrics(out / "metrics.jsonl");
  for (std::string line; std::getline(metrics, line);)
    if (const auto json = nlohmann::json::parse(line, nullptr, false);
        !json.is_discarded() && json.contains("loss"))
      run.losses.push_back(json.at("loss").get<double>());
  return run;
}

}  // namespace

bool has_program() { return fs::exists(program()); }

void expect_program(const std::vector<std::string>& options) {
  const fs::path solution = settings().implementation_file().parent_path() / "solution.so";
  const Run right = run_program(solution, options);
  require(right.succeeded && !right.losses.empty(), "the program fails with the solution: {}",
          right.output);
  const Run run = run_program(settings().implementation_file(), options);
  const std::string how = fmt::format(
      "\n(the program with {}; its test counts with this task, but the mistake can be in any)",
      fmt::join(options, " "));
  if (!run.succeeded)
    stop(
        "every task is right on its own, but the program made of them fails:\n" +
        quoted(run.output.substr(run.output.size() > 2000 ? run.output.size() - 2000 : 0), "  | ") +
        how);
  for (size_t i = 0; i < right.losses.size(); ++i)
    if (i >= run.losses.size() ||
        !(std::abs(run.losses[i] - right.losses[i]) <= kTolerance * right.losses[i]))
      stop(fmt::format(
          "every task is right on its own, but the program made of them learns something else: "
          "loss {} is {}, it should be {:.6f}{}",
          i + 1, i < run.losses.size() ? fmt::format("{:.6f}", run.losses[i]) : "missing",
          right.losses[i], how));
}

}  // namespace lab::grading
