// Shows the measured timeline of a training step.
#pragma once

#include <filesystem>
#include <optional>

#include "common/model/llama_stage.h"
#include "common/pipeline/schedule.h"
#include "common/pipeline/step_timing.h"
#include "common/run/launch/job.h"
#include "common/run/timeline/recorded_timeline.h"

namespace lab {

/// The step in `window`, on rank 0; nothing on the others. All ranks of the job call it. The world
/// consists of one or more pipelines of `schedule.stage_count()` stages each, one after the other;
/// each stage has `slices` adjacent ranks.
std::optional<StepTimeline> measured_step(Job& job, const LlamaStage& stage,
                                          const TimeWindow& window, const Schedule& schedule,
                                          int slices = 1);

/// Prints the grid (in colour on a terminal), measured and theoretical idle time and the memory for
/// activations. `folder`: where write_timeline has written its files.
void print_timeline(const StepTimeline& step, const std::filesystem::path& folder);

/// All three, on all ranks of a job whose world is one pipeline.
void show_timeline(Job& job, const LlamaStage& stage, const TimeWindow& window,
                   const Schedule& schedule, const std::filesystem::path& folder);

}  // namespace lab
