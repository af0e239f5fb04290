#include "common/run/training/run_program.h"

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/io/terminal.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/launch/launcher.h"

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

/// With restarts.
int launch_training(const RunPlan& plan, std::vector<std::string> arguments) {
  if (plan.max_restarts == 0) return launch(plan.launch, arguments);
  if (has_several_hosts(plan.launch))
    throw UsageError(
        "--max-restarts works on one host; with --nnodes, start again on every host with --resume");
  // All attempts write to one folder, which must be known here.
  fs::path folder = plan.out;
  if (!plan.resume) {
    folder = make_run_folder(plan.out, source_folder() / "runs", plan.run_name);
    if (plan.out.empty()) arguments.insert(arguments.end(), {"--out", folder.string()});
  }
  bool resumes = plan.resume;
  for (int attempt = 0;; ++attempt) {
    const int exit_code = launch(plan.launch, arguments);
    if (!can_be_mended_by_a_restart(exit_code) || attempt == plan.max_restarts) {
      std::error_code ignored;
      fs::remove(folder, ignored);  // does nothing unless it is empty
      return exit_code;
    }
    if (!resumes && can_resume(folder)) {
      resumes = true;
      arguments.emplace_back("--resume");
    }
    const auto checkpoints = list_checkpoints(folder);
    print_if_possible(stderr, "restart {} of {}: {}\n", attempt + 1, plan.max_restarts,
                      checkpoints.empty() ? "from the start, as there is no checkpoint yet"
                                          : "from " + display_path(checkpoints.back()));
  }
}

}  // namespace

int run_program(const RunPlan& plan, int argc, const char* const* argv,
                const std::function<int(Job&, const RunPlan&)>& train,
                const std::function<void(const RunPlan&)>& check) {
  if (is_launcher(plan.launch)) {
    if (check) check(plan);
    return launch_training(plan, {argv, argv + argc});
  }
  Job job(read_rank_environment(plan.launch));
  return train(job, plan);
}

}  // namespace lab
