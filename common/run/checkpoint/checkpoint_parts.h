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
// The weights are in Hugging Face's format of a sharded model. They can be loaded by any number of
// ranks: see checkpoint.h.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/process_group.h"
#include "common/run/checkpoint/checkpoint.h"

namespace lab {

/// Which part of a model a rank holds: the ranks of `world` are `replicas` pipelines of `stages`
/// stages each, pipeline by pipeline.
struct RankOfModel {
  int stage = 0;
  int stages = 1;
  int replica = 0;  // of this stage: the number of the pipeline
  int replicas = 1;
  bool padded = false;            // tensors hold more numbers than there are weights: shards
  ProcessGroup* world = nullptr;  // null: this rank holds all of it, and no other rank does

  /// The ranks of `world` are pipelines of `stages` stages. Throws Error unless their number is a
  /// multiple of `stages`.
  static RankOfModel in_mesh(ProcessGroup& world, int stages);
  /// A single pipeline.
  static RankOfModel in_pipeline(ProcessGroup& pipeline) {
    return in_mesh(pipeline, pipeline.size());
  }
};

/// Whether this rank sees a file of rank 0 with this content, that is, whether they write to the
/// same folder. On another host without a shared file system they do not.
using SeesFile = std::function<bool(const std::filesystem::path& file, const std::string& content)>;
bool sees_file(const std::filesystem::path& file, const std::string& content);

/// Writes checkpoint `state.step` of a run; all ranks of the world call it, with the `groups` of
/// their stage. Group i of a stage is written by replica i mod `replicas`; a rank that does not see
/// rank 0's folder sends its groups to rank 0 instead. `run`, `state`, `config` and `tokenizer` are
/// those of rank 0, which writes the files without tensors and gives the folder its name when all
/// files are on disk. Returns the folder, on every rank.
///
/// Throws Error on every rank if one of them fails, naming the first; leaves nothing behind, and
/// older checkpoints stay. A full disk on one rank does not keep the others waiting.
///
/// Messages: three broadcasts and a report of each rank to rank 0, some kilobytes; weights only
/// from ranks that cannot write. A world of one rank, or none, writes as `save_checkpoint` does.
std::filesystem::path save_checkpoint_parts(const std::filesystem::path& run,
                                            const RankOfModel& rank, const TrainingState& state,
                                            const LlamaConfig& config,
                                            const std::vector<SavedGroup>& groups,
                                            const TokenizerCopy& tokenizer,
                                            const SeesFile& sees = sees_file);

}  // namespace lab
