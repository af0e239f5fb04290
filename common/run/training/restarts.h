// Restarts: a training job that goes on by itself after a rank has failed.
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

/// launch_ranks for a program that trains. When the job fails (a rank is killed, or stops with an
/// error that is not one of usage), it is started again, `max_restarts` times at most, from its
/// newest checkpoint; where there is none yet, from the start. Not after Ctrl-C.
/// `arguments`: the program's command line. Returns the exit code for main.
int launch_training(const LaunchOptions& launch, const RestartOptions& restarts,
                    const TrainOptions& options, std::vector<std::string> arguments);

}  // namespace lab
