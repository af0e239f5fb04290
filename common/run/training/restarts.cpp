// Restarts of a training job.
#include "common/run/training/restarts.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/checkpoint/training_state.h"
#include "common/run/launch/launcher.h"
#include "common/run/options/main_guard.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr int kUsageExit = 2;

int launch(const LaunchOptions& options, const std::vector<std::string>& arguments) {
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  return launch_ranks(options, static_cast<int>(pointers.size()), pointers.data());
}

bool can_be_mended_by_a_restart(int exit_code) {
  return exit_code != 0 && exit_code != kUsageExit && exit_code != 128 + SIGINT &&
         exit_code != 128 + SIGTERM && exit_code != 128 + SIGPIPE;
}

}  // namespace

void add_restart_options(CLI::App& app, RestartOptions& options) {
  app.add_option("--max-restarts", options.max_restarts,
                 "resume from the newest checkpoint when a rank fails, at most N times")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->group("Run");
}

int launch_training(const LaunchOptions& launch_options, const RestartOptions& restarts,
                    const TrainOptions& options, std::vector<std::string> arguments) {
  if (restarts.max_restarts == 0) return launch(launch_options, arguments);
  if (has_several_hosts(launch_options))
    throw UsageError(
        "--max-restarts works on one host; with --nnodes, start again on every host with --resume");
  // All attempts write to one folder, which must be known here.
  fs::path folder = options.out;
  if (!options.resume) {
    folder = make_run_folder(options.out, source_folder() / "runs", options.run_name);
    if (options.out.empty()) arguments.insert(arguments.end(), {"--out", folder.string()});
  }
  bool resumes = options.resume;
  for (int attempt = 0;; ++attempt) {
    const int exit_code = launch(launch_options, arguments);
    if (!can_be_mended_by_a_restart(exit_code) || attempt == restarts.max_restarts) {
      std::error_code ignored;
      fs::remove(folder, ignored);  // does nothing unless it is empty
      return exit_code;
    }
    const auto checkpoints = list_checkpoints(folder);
    if (!checkpoints.empty() && load_training_state(checkpoints.back()).step >= options.steps) {
      fmt::print(stderr, "no restart: the run has done all its {} steps\n", options.steps);
      return exit_code;
    }
    if (checkpoints.empty())
      clear_unfinished_run(folder);
    else if (!resumes)
      arguments.emplace_back("--resume");
    resumes = resumes || !checkpoints.empty();
    fmt::print(stderr, "restart {} of {}: {}\n", attempt + 1, restarts.max_restarts,
               checkpoints.empty() ? "from the start, as there is no checkpoint yet"
                                   : "from " + display_path(checkpoints.back()));
  }
}

}  // namespace lab
