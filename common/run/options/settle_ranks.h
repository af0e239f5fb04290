// How the ranks of a run divide its work.
#pragma once

#include <cstdint>

#include "common/run/options/command_line.h"
#include "common/run/options/run_plan.h"

namespace lab {

/// The most microbatches of a wave in several stages: an executor may post two messages per
/// microbatch before it waits for the first, and the flight record holds kMaxPending operations.
inline constexpr int kMaxMicrobatches = 500;

/// Adds the options about ranks that a program with `plan.division` has. The sizes of a mesh are 0
/// until they are given or settled.
void add_rank_options(CommandLine& line, RunPlan& plan);

/// Settles dp, pp, microbatches and accumulate, and, if this process is to start the ranks of a
/// mesh, their number. In a mesh, what was not given becomes
///   - dp and pp: 2 x 3. For a given number of ranks, as many stages as divide it, at most three;
///     one rank is 1 x 1.
///     If layers are divided, 1 x 1 on three ranks, or on as many as there are. In the trainer,
///     layers are whole by default, and replicas in shards are six, or as many as there are ranks.
///   - microbatches: six per step in all pipelines together; in a resumed run, as many as before.
/// `resumed`: microbatches per step of the run that is resumed; 0 for a new run.
/// Throws UsageError: a world that is not of dp * pp * tp ranks; shards together with
/// stages or slices; a resumed run that would read another number of microbatches per step; too
/// many microbatches; --accumulate where microbatches and waves determine it.
void settle_ranks(RunPlan& plan, int64_t resumed = 0);

}  // namespace lab
