// The measured timeline of a training step, as a program shows it.
#pragma once

#include <filesystem>

#include "common/launch/job.h"
#include "common/model/llama_stage.h"
#include "common/pipeline/schedule.h"
#include "common/train/recorded_timeline.h"

namespace lab {

/// Shows what all ranks of a pipeline did in `window`; all of them call it. Rank 0 prints the grid
/// (in colour on a terminal), measured and theoretical idle time and the memory for activations,
/// and writes FOLDER/timeline.svg and FOLDER/trace.json (for ui.perfetto.dev). `schedule`: what the
/// stages ran; theory is that schedule in simulated time, with passes as long as they were on
/// average on each stage.
void show_timeline(Job& job, const LlamaStage& stage, const TimeWindow& window,
                   const Schedule& schedule, const std::filesystem::path& folder);

}  // namespace lab
