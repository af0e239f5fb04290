// Stages and schedule of a pipeline, as a plan asks for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/pipeline/schedule.h"
#include "common/run/launch/job.h"

namespace lab {

/// Lab 04's split; `head_cost` is in layers.
using SplitFunction = std::vector<StageSpan> (*)(int64_t layers, int stages, double head_cost);

/// The stages of a pipeline of `stages` ranks: those of `given` (--split), else those that `split`
/// chooses.
/// Throws UsageError if --split does not fit model and ranks, or there are more stages than layers;
/// Error if what `split` returns is not a split, or if the head is tied (it would share its weights
/// with another rank's embedding).
std::vector<StageSpan> choose_stages(const LlamaConfig& config, int stages,
                                     const std::string& given, SplitFunction split);

/// Lab 05's schedules, by name.
struct ScheduleFunctions {
  Schedule (*gpipe)(int stages, int microbatches);
  Schedule (*one_f_one_b)(int stages, int microbatches);
};

/// The schedule that --schedule asks for: "gpipe", "1f1b", or a file, with or without messages.
/// Throws Error if the file cannot be read, or the schedule cannot be run or is for another number
/// of stages or microbatches.
Schedule choose_schedule(const std::string& name, int stages, int microbatches,
                         const ScheduleFunctions& functions);

/// Throws Error on every rank unless all have the same schedule.
void agree_on_schedule(Job& job, const Schedule& schedule);

/// Throws Error on every rank unless all were started with the same stages. Otherwise layers would
/// be missing or duplicated.
void agree_on_stages(Job& job, const std::vector<StageSpan>& spans);

/// "0: embedding, layers 0-1 | 1: layers 2-3 | 2: layers 4-5, head".
std::string describe_stages(const std::vector<StageSpan>& spans);

}  // namespace lab
