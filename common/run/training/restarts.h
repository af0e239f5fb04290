// Restarts: a training job that is restarted automatically after a rank has failed.
#pragma once

#include <string>
#include <vector>

#include "common/run/options/options.h"
#include "common/run/rendezvous/rank_environment.h"

namespace CLI {
class App;
}

namespace lab {

struct RestartOptions {
  int max_restarts = 0;
};

void add_restart_options(CLI::App& app, RestartOptions& options);

/// launch_ranks for a training program. When the job fails (a rank is killed, or stops with an
/// error other than a usage error), it is restarted at most `max_restarts` times, from its newest
/// checkpoint, or from the start if there is none yet. Not after Ctrl-C. `arguments`: the program's
/// command line. Returns the exit code for main.
int launch_training(const LaunchOptions& launch, const RestartOptions& restarts,
                    const TrainOptions& options, std::vector<std::string> arguments);

}  // namespace lab
