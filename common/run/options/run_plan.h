// RunPlan: everything that is settled about a training run before it begins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/model/config.h"
#include "common/optim/schedule.h"
#include "common/run/rendezvous/rank_environment.h"

namespace lab {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

/// How a program divides its work among ranks. Decides which options it has about them.
enum class Division {
  kNone,          // one process
  kReplicas,      // the whole model on every rank
  kStages,        // one pipeline, and the batch goes through it in one piece
  kMicrobatches,  // one pipeline, and several microbatches at a time
  kMesh,          // several such pipelines
  kSlices,        // the same, with every layer divided among several ranks
  kTrainer,       // any of these, or replicas that hold the model in shards
};

/// What replicas hold in shards at a stage of ZeRO: "weights, gradients and optimizer state" at 3.
const char* in_shards(int stage);

/// Whether the ranks are pipelines: dp x pp.
inline bool has_mesh(Division division) {
  return division == Division::kMesh || division == Division::kSlices ||
         division == Division::kTrainer;
}

/// settle_plan (common/run/training/settle_plan.h) makes it of command line, file of options and,
/// with --resume, a checkpoint. Nobody changes it afterwards.
struct RunPlan {
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
  int64_t checkpoint_every = 200;     // steps; 0: at the end only
  int64_t validate_every = 100;       // steps; 0: at the start and at the end only
  int64_t validation_batches = 16;
  int64_t log_every = 1;                    // steps from one loss to the next
  bool timeline = false;                    // show what every rank did in the last step
  std::string prompt = "Once upon a time";  // of the story at the end
  int64_t story_tokens = 200;               // at most; 0: no story
  int max_restarts = 0;                     // after a rank has failed

  // Ranks: which of them this process is, or starts
  LaunchOptions launch;

  // How the ranks divide the work: dp replicas of the model, each a pipeline of pp stages, each
  // stage on tp ranks that hold slices of its layers.
  Division division = Division::kNone;
  int dp = 1;
  int pp = 1;
  int tp = 1;
  int shard = 0;                  // what replicas hold in shards: ZeRO's stage, 0 to 3
  int microbatches = 1;           // that a wave takes through a pipeline
  int waves = 1;                  // before each update
  std::string schedule = "1f1b";  // or "gpipe", or a file
  std::string split;              // "3,2,1": layers of each stage; empty: the lab's split

  // Data
  std::filesystem::path data;
  std::filesystem::path tokenizer;
  std::filesystem::path cache;

  // Optimization
  int64_t batch = 3;       // sequences per microbatch
  int64_t accumulate = 1;  // microbatches of a replica per step
  double learning_rate = 8e-4;
  int64_t warmup = 0;  // steps
  Decay decay = Decay::kCosine;
  OptimizerKind optimizer = OptimizerKind::kAdam;
  double weight_decay = 0.0;
  double clip = 1.0;  // largest norm of the gradient; 0: no clipping

  LlamaConfig model;  // vocab_size is not an option: it is the tokenizer's

  /// Options that only some programs have, and that belong to a run as the others do, by name:
  /// "--every".
  std::map<std::string, std::string> program;

  std::string config_file;  // all options as a file that --config accepts

  /// The learning rates of the run.
  LearningRate learning_rates() const;

  int ranks() const { return dp * pp * tp; }
  /// Sequences that all replicas together read before each update.
  int64_t sequences_per_step() const { return dp * accumulate * batch; }

  /// Throws UsageError naming the first option that is out of range or contradicts another.
  void validate() const;
};

/// The folder with the corpus and the tokenizer: the one that this program was built from or, if it
/// was built to be moved, the one above the program.
std::filesystem::path source_folder();

/// A plan with corpus, tokenizer and cache of the source folder.
RunPlan default_plan();

/// For the checkpoint, and back.
/// `from_json` throws nlohmann's exceptions, or Error for a number that does not fit.
nlohmann::json plan_to_json(const RunPlan& plan);
RunPlan plan_from_json(const nlohmann::json& json);

/// The values that decide what a run computes and therefore cannot change halfway, by option:
/// "--lr".
std::vector<std::pair<std::string, nlohmann::json>> fixed_values(const RunPlan& plan);

}  // namespace lab
