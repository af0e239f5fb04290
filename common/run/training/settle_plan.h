// Settles a run: command line, file of options and, with --resume, a checkpoint become one plan.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/run/options/command_line.h"
#include "common/run/options/run_plan.h"
#include "common/run/options/settle_ranks.h"

namespace lab {

/// What a training program is, and which options it has besides those of every run.
struct ProgramInfo {
  std::string about;  // first line of --help
  std::string run_name = "train";
  Division division = Division::kNone;
  int64_t batch = 3;                // default of --batch
  int64_t steps = 700;              // default of --steps
  double learning_rate = 8e-4;      // default of --lr
  int64_t warmup_share = 16;        // default of --warmup: --steps divided by it
  float embedding_scale = 1;        // default of --embedding-scale, without --tied
  int64_t checkpoint_every = 200;   // default of --checkpoint-every
  int64_t validation_batches = 16;  // default of --validation-batches
  int64_t log_every = 0;            // default of --log-every; 0: there is no such option
  bool restarts = false;            // whether there is --max-restarts
  bool regroups = false;            // a resumed run may have another number of replicas, if these
                                    // can share the microbatches of a step equally
  /// Adds the program's own options; may be empty.
  std::function<void(CommandLine&)> add_options = {};
  /// Settles what follows from them for the plan; may be empty.
  std::function<void(RunPlan&)> settle = {};
};

/// Throws HelpRequested for --help, and UsageError for unknown, contradictory or impossible
/// options. With --resume, options that are not given are those that the run was started with;
/// contradicting one that decides what is computed is an error. These may be given again: --steps,
/// --threads, --device, --precision, --comm, folders, how often to validate and save, and options
/// that are `carried`. So a run can continue on another machine, and without its GPU, with
/// --device cpu --precision float32. A --split that is not given again is dropped if the number of
/// stages changes, since it was made for the earlier one. A run without a checkpoint starts again
/// with the options in its folder. --cache is never taken over.
RunPlan settle_plan(int argc, const char* const* argv, const ProgramInfo& info);

}  // namespace lab
