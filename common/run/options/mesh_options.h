// The options about a mesh of pipelines, in addition to TrainOptions and PipelineOptions.
#pragma once

#include <string>

#include "common/run/options/options.h"
#include "common/run/rendezvous/rank_environment.h"

namespace CLI {
class App;
}

namespace lab {

/// 0: not given.
struct MeshOptions {
  int dp = 0;            // pipelines
  int pp = 0;            // stages of each
  int microbatches = 0;  // that a wave takes through a pipeline
  int waves = 1;         // before each update
  std::string schedule = "1f1b";

  int ranks() const { return dp * pp; }
};

void add_mesh_options(CLI::App& app, MeshOptions& options);

/// Fills in what was not given, and passes it on: the number of ranks to `launch`, replicas and
/// microbatches of a pipeline to `train` (ranks, accumulate).
///   - dp and pp: 2 x 3. For a given number of ranks, as many stages as divide it, at most three;
///     one rank is 1 x 1.
///   - microbatches: six per step in all pipelines together; in a resumed run, as many as before.
/// Throws UsageError: a world that is not of dp * pp ranks; a resumed run that would read another
/// number of microbatches per step.
void settle_mesh(MeshOptions& options, LaunchOptions& launch, TrainOptions& train);

}  // namespace lab
