// The options of the training programs of pipelines, in addition to TrainOptions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/pipeline/schedule.h"
#include "common/run/launch/job.h"
#include "common/run/options/options.h"

namespace CLI {
class App;
}

namespace lab {

/// The most microbatches of a wave in several stages: an executor may post two messages per
/// microbatch before it waits for the first, and the flight record holds kMaxPending operations.
inline constexpr int kMaxMicrobatches = 500;

/// Throws UsageError if a wave has more microbatches than that.
void check_microbatches(int microbatches, int stages);

struct PipelineOptions {
  std::string split;       // "3,2,1": layers of each stage; empty: the lab's split
  int64_t log_every = 10;  // steps
  bool timeline = false;
};

void add_pipeline_options(CLI::App& app, PipelineOptions& options);

/// Lab 04's split; `head_cost` is in layers.
using SplitFunction = std::vector<StageSpan> (*)(int64_t layers, int stages, double head_cost);

/// The stages of a pipeline of `stages` ranks: those of --split, else those that `split` chooses.
/// Throws UsageError if --split does not fit model and ranks, or there are more stages than layers;
/// Error if what `split` returns is not a split, or if the head is tied (it would share its weights
/// with another rank's embedding).
std::vector<StageSpan> choose_stages(const LlamaConfig& config, int stages,
                                     const PipelineOptions& options, SplitFunction split);

/// A --split that --resume took from the checkpoint belongs to the earlier number of stages: with
/// another number it is dropped. One that is given again is kept, and is an error if it does not
/// fit.
void drop_resumed_split(PipelineOptions& options, TrainOptions& train, int stages);

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

/// Throws Error on every rank unless all were started with the same stages and options. Otherwise
/// layers would be missing or duplicated, or ranks would wait for different things.
void agree_on_pipeline(Job& job, const std::vector<StageSpan>& spans,
                       const PipelineOptions& options);

/// "0: embedding, layers 0-1 | 1: layers 2-3 | 2: layers 4-5, head".
std::string describe_stages(const std::vector<StageSpan>& spans);

}  // namespace lab
