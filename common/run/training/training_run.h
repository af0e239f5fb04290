// TrainingRun: the folder of a training run and everything written there.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "common/comm/process_group.h"
#include "common/data/sampler.h"
#include "common/data/token_dataset.h"
#include "common/data/tokenizer.h"
#include "common/io/folder_lock.h"
#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_parts.h"
#include "common/run/options/options.h"
#include "common/run/training/interrupt.h"
#include "common/run/training/metrics.h"
#include "common/run/training/progress.h"

namespace lab {

/// The optimizer chosen by the options, for the weights of `model`; `update` is lab 01's, for the
/// model's device.
std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& options, const LlamaStage& model,
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
  /// Which part of the whole `model` is, if it is only a part; then all ranks save checkpoints
  /// together.
  RankOfModel rank = {};
};

/// Which rank writes progress, metrics and checkpoints: of several ranks that train together, only
/// one.
enum class RunFiles {
  kWritten,
  kNone,  // this rank prints and writes nothing; it resumes and reacts to Ctrl-C like the others
};

/// Everything around a training loop, so that the loop shows only training: progress in the
/// terminal, metrics.jsonl, loss.svg, checkpoints, Ctrl-C. With --resume it first restores model,
/// optimizer and sampler from the newest checkpoint.
class TrainingRun {
 public:
  /// Makes the run's folder, or opens the one to resume. Throws Error: folder not writable,
  /// checkpoint damaged, other data than before.
  TrainingRun(const TrainOptions& options, const TrainingParts& parts,
              RunFiles files = RunFiles::kWritten);
  /// Removes the folder again if no step was recorded.
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Empty on ranks that write nothing.
  const std::filesystem::path& folder() const { return folder_; }

  /// The loop runs from first_step() while goes_on(step): until options.steps or Ctrl-C.
  int64_t first_step() const { return state_.step + 1; }
  bool goes_on(int64_t step) const;

  /// Whether the options ask for a validation loss after this step. `record_start` takes the one
  /// before the first step, which a new run should measure.
  bool validation_due(int64_t step) const;
  void record_start(std::optional<double> validation_loss);

  /// Records the measurements of a step. Throws Error if the loss is not a number: training has
  /// diverged.
  void record(StepRecord record);

  /// Whether the options, the end of the run or Ctrl-C ask for a checkpoint after this step.
  bool checkpoint_due(int64_t step) const;
  /// Writes a checkpoint of the last recorded step and the loss plot.
  void save_checkpoint();

  /// Prints a summary and where the files are; writes a missing last checkpoint. Returns the exit
  /// code of the program: 0, or 130 after Ctrl-C.
  int finish();

 private:
  void resume();
  void write_plot() const;
  void check_weights() const;
  void print_start() const;

  TrainOptions options_;
  TrainingParts parts_;
  RunFiles files_;
  TokenizerCopy tokenizer_;
  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;  // on the rank that writes
  TrainingState state_;
  int64_t saved_step_ = 0;
  double seconds_before_ = 0.0;
  std::optional<MetricsFile> metrics_;
  std::optional<ProgressLine> progress_;
  Stopwatch stopwatch_;
  std::optional<Interrupt> interrupt_;  // from the start to finish()
};

}  // namespace lab
