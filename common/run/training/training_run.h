// TrainingRun: the folder of a training run and everything written there.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/io/folder_lock.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_parts.h"
#include "common/run/checkpoint/saved_tensors.h"
#include "common/run/launch/job.h"
#include "common/run/metrics/metrics.h"
#include "common/run/metrics/progress.h"
#include "common/run/options/run_plan.h"
#include "common/run/training/interrupt.h"

namespace lab {

/// The optimizer that the plan asks for, for the weights of `model`, or for `size` of them;
/// `update` is lab 01's, for the device that they are on.
std::unique_ptr<Optimizer> make_optimizer(const RunPlan& plan, const LlamaStage& model,
                                          AdamUpdate update);
std::unique_ptr<Optimizer> make_optimizer(const RunPlan& plan, int64_t size, Device device,
                                          AdamUpdate update);

/// Measures time from its construction.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// What a run reads and updates; must outlive the TrainingRun.
struct TrainingParts {
  LlamaStage& model;
  Optimizer& optimizer;
  Sampler& sampler;
  const Tokenizer& tokenizer;
  const TokenDataset& data;
  /// The validation loss of the present weights (common/run/training/validation.h). All ranks call
  /// it together.
  std::function<std::optional<double>()> validate;
  /// The stages of the pipeline, if `model` is only one of them. Then all ranks save checkpoints
  /// together.
  std::vector<StageSpan> stages = {};
  /// If `model` is a slice of a stage: the ranks that hold the others, in their order, and
  /// those that hold the same slice of this stage and others. A checkpoint is of the whole model.
  ProcessGroup* slices = nullptr;
  ProcessGroup* same_slice = nullptr;
  /// For a model of which every rank holds shards: what this rank writes into a checkpoint, and how
  /// it reads its shards from one, whatever number of ranks has written it. Then all ranks save
  /// checkpoints together.
  std::function<std::vector<SavedGroup>()> shards = {};
  std::function<void(const std::filesystem::path& checkpoint)> load_shards = {};
  /// Whether these are whole tensors of the model, of which each rank writes some. Otherwise only
  /// `load_shards` can read the checkpoint, and no story is told, since no rank holds the model.
  bool whole_tensors = false;
  /// False if a run has state that is not in its checkpoints, so that it cannot go on from one.
  bool resumable = true;
};

/// Everything around a training loop, so that the loop shows only training: progress in the
/// terminal, metrics.jsonl, loss.svg, checkpoints, Ctrl-C. With --resume it first restores model,
/// optimizer and sampler from the newest checkpoint.
///
/// Of several ranks (`job`), all call the same functions. Only rank 0 prints and writes, apart from
/// parts of checkpoints.
class TrainingRun {
 public:
  /// Makes the run's folder, or opens the one to resume. Throws Error: folder not writable,
  /// checkpoint damaged, other data than before.
  TrainingRun(const RunPlan& plan, const TrainingParts& parts, Job* job = nullptr);
  /// Removes the folder again if no step was recorded.
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Empty on ranks that write nothing.
  const std::filesystem::path& folder() const { return folder_; }

  /// The first step of this process. begin() validates a new run before it.
  int64_t begin();

  /// False after the last step and after Ctrl-C, on all ranks alike: they agree once for each step.
  bool goes_on(int64_t step);

  /// The input of the next step.
  std::vector<TokenBatch> next_microbatches();

  /// Whether the loss of this step is to be recorded.
  bool record_due(int64_t step);
  /// Records the loss of a step, the speed since the last record, and the validation loss if the
  /// plan asks for it after this step. Throws Error if a loss is not a number: training has
  /// diverged.
  void record(int64_t step, double loss);

  /// For permanent lines and what else is to be shown during training; on the rank that prints.
  ProgressLine& progress() { return progress_.value(); }

  /// Whether the plan, the end of the run or Ctrl-C ask for a checkpoint after this step.
  bool checkpoint_due(int64_t step);
  /// Writes a checkpoint of the last recorded step and the loss plot.
  void save_checkpoint();

  /// Writes the last checkpoint if it is missing, or the files that a run killed right after it
  /// lacks; prints a summary and where the files are.
  void finish();
  /// Prints the story at the end, if the run is complete and the plan asks for one.
  void tell_story() const;
  /// After finish(): that of the program, 0, or 130 after Ctrl-C.
  int exit_code() const { return exit_code_; }

 private:
  void resume();
  void write_plot() const;
  void check_weights(const SavedGroup& weights) const;
  void print_start() const;
  void record_start();
  bool validation_due(int64_t step) const;

  const RunPlan& plan_;
  TrainingParts parts_;
  Job* job_;
  bool writes_;
  RankOfModel rank_;
  TokenizerCopy tokenizer_;
  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;  // on the rank that writes
  TrainingState state_;
  int64_t first_step_ = 1;
  int64_t saved_step_ = 0;
  double seconds_before_ = 0.0;
  std::optional<MetricsFile> metrics_;
  std::optional<ProgressLine> progress_;
  Stopwatch stopwatch_;
  std::optional<Stopwatch> since_record_;  // from the input of the next step on
  int64_t asked_step_ = 0;                 // the last argument of goes_on, and its answer
  bool goes_on_ = false;
  int stopped_by_ = 0;  // the signal on which the ranks agreed
  int exit_code_ = 0;
  std::optional<Interrupt> interrupt_;  // from the start to finish()
};

}  // namespace lab
