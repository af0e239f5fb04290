// Checkpoints of a model that several ranks hold: each writes its part, and all parts are published
// together or not at all.
//
//   checkpoint-000200/                                 stages 1, 2, 3
//     model-00001-of-00003.safetensors ...             weights of a stage
//     model.safetensors.index.json                     which tensor is in which file
//     optimizer.exp_avg-00001-of-00003.safetensors     first moments of a stage
//     optimizer.exp_avg_sq-00001-of-00003.safetensors  second moments
//     optimizer.safetensors.index.json
//     config.json, tokenizer.model, training.json, checksums.json
//
// The weights are Hugging Face's own form of a sharded model. Whoever loads them need not have as
// many ranks: see checkpoint.h.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/run/checkpoint/checkpoint.h"

namespace lab {

/// Which part of a model a rank holds, and with whom: `replicas` pipelines of `stages` stages each
/// are the ranks of `world`, pipeline by pipeline.
struct RankOfModel {
  int stage = 0;
  int stages = 1;
  int replica = 0;  // of this stage: the number of the pipeline
  int replicas = 1;
  ProcessGroup* world = nullptr;  // null: this rank holds all of it, and shares it with nobody

  /// The ranks of `world` are pipelines of `stages` stages. Throws Error if they do not come out
  /// even.
  static RankOfModel in_mesh(ProcessGroup& world, int stages);
  /// One pipeline.
  static RankOfModel in_pipeline(ProcessGroup& pipeline) {
    return in_mesh(pipeline, pipeline.size());
  }
};

/// Whether this rank sees a file of rank 0 with this content: only then do they write to the same
/// folder. Not so on another host without a shared file system.
using SeesFile = std::function<bool(const std::filesystem::path& file, const std::string& content)>;
bool sees_file(const std::filesystem::path& file, const std::string& content);

/// Writes checkpoint `state.step` of a run; all ranks of the world call it, with the `groups` of
/// their stage. Group i of a stage is written by replica i mod `replicas` of it; a rank that does
/// not see rank 0's folder sends its groups there instead. `run`, `state`, `config` and `tokenizer`
/// are rank 0's; it writes what holds no tensors, and gives the folder its name when all files are
/// on disk. Returns the folder, on every rank.
///
/// Throws Error on every rank if one of them fails, naming the first; nothing is left behind, and
/// older checkpoints stay. No rank waits for one whose disk is full.
///
/// Messages: three broadcasts and a report of each rank to rank 0, some kilobytes; weights only
/// from ranks that cannot write. A world of one rank writes as `save_checkpoint` does.
std::filesystem::path save_checkpoint_parts(const std::filesystem::path& run,
                                            const RankOfModel& rank, const TrainingState& state,
                                            const LlamaConfig& config,
                                            const std::vector<SavedGroup>& groups,
                                            const TokenizerCopy& tokenizer,
                                            const SeesFile& sees = sees_file);

}  // namespace lab
