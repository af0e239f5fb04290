// TrainOptions: what a user can choose about a training run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "common/model/config.h"
#include "common/optim/schedule.h"

namespace lab {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

struct TrainOptions {
  // Run
  int64_t steps = 700;  // optimizer steps in all, including those before a resume
  int64_t seed = 1;
  std::filesystem::path out;       // empty: the next free folder of runs/
  std::string run_name = "train";  // runs/007-train
  bool resume = false;
  std::string device = "cpu";         // as choose_device takes it
  std::string precision = "float32";  // on a GPU: as choose_device takes it
  std::string comm = "gloo";          // what moves tensors between GPUs: see agree_on_device
  int threads = 0;                    // 0: all cores, or a rank's part of them
  int64_t ranks = 1;               // replicas of the model that train together; the program sets it
  int64_t checkpoint_every = 200;  // steps; 0: at the end only
  int64_t validate_every = 100;    // steps; 0: at the start and at the end only
  int64_t validation_batches = 16;
  std::string prompt = "Once upon a time";  // of the story at the end
  int64_t story_tokens = 200;               // at most; 0: no story

  // Data
  std::filesystem::path data;
  std::filesystem::path tokenizer;
  std::filesystem::path cache;

  // Optimization
  int64_t batch = 3;       // sequences per microbatch
  int64_t accumulate = 1;  // microbatches per step
  double learning_rate = 8e-4;
  int64_t warmup = 0;  // steps
  Decay schedule = Decay::kCosine;
  OptimizerKind optimizer = OptimizerKind::kAdam;
  double weight_decay = 0.0;
  double clip = 1.0;  // largest norm of the gradient; 0: no clipping

  /// Values of the program's own options (ProgramInfo::kept) by name, "--every": they belong to a
  /// run like the others.
  std::map<std::string, std::string> program;
  /// Those of them that --resume took from the checkpoint.
  std::set<std::string> resumed;

  LlamaConfig model;  // vocab_size is not an option: it is the tokenizer's

  std::string config_file;  // all options as a file that --config accepts

  /// The learning rates of the run.
  LearningRate learning_rates() const;

  /// Throws UsageError naming the first option that is out of range or contradicts another.
  void validate() const;
};

/// How many sequences all replicas of the model read together before each update.
int64_t sequences_per_step(const TrainOptions& options);

/// The folder that this program was built from: where the corpus and the tokenizer are.
std::filesystem::path source_folder();

/// TrainOptions with corpus, tokenizer and cache of the source folder.
TrainOptions default_train_options();

/// For the checkpoint, and back.
/// `from_json` throws nlohmann's exceptions, or Error for a number that does not fit.
nlohmann::json options_to_json(const TrainOptions& options);
TrainOptions options_from_json(const nlohmann::json& json);

}  // namespace lab
