#include "common/run/checkpoint/checkpoint.h"

#include <set>
#include <vector>

#include "common/error.h"
#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "common/model/slice.h"
#include "common/printable.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/checkpoint_tensors.h"
#include "common/run/checkpoint/config_json.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.model";

// Tensors of foreign files that this model computes itself.
bool can_be_ignored(const std::string& name, const LlamaConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tied_head && name == "lm_head.weight");
}

// Copies a set of tensors into `targets`, those of a stage, or of a slice of one. For a whole
// model, the names must be the same on both sides.
void copy_all(CheckpointTensors& source, const std::vector<NamedTensor>& targets,
              const LlamaStage& stage) {
  std::set<std::string> expected;
  for (const auto& [name, target] : targets) {
    if (stage.slice().ranks == 1) {
      source.copy_to(name, target);
    } else {
      const Tensor whole = Tensor::empty(whole_shape(name, stage.config()));
      source.copy_to(name, whole);
      target.copy_from(slice_of(name, whole, stage.slice()));
    }
    expected.insert(name);
  }
  if (stage.span() != StageSpan::whole(stage.config()))
    return;  // the others belong to other stages
  for (const std::string& name : source.names())
    require(expected.contains(name) || can_be_ignored(name, stage.config()),
            "{}: tensor \"{}\" does not belong to a model of this kind and size",
            source.path().string(), printable(name));
}

// All groups except the first, the weights.
std::vector<NamedTensor> optimizer_tensors(const std::vector<SavedGroup>& groups) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 1; i < groups.size(); ++i)
    tensors.insert(tensors.end(), groups[i].tensors.begin(), groups[i].tensors.end());
  return tensors;
}

}  // namespace

void write_tensors(const fs::path& file, const std::string& set,
                   const std::vector<NamedTensor>& tensors) {
  // transformers requires the entry "format".
  write_safetensors(file, tensors, set == kModelSet ? Metadata{{"format", "pt"}} : Metadata{});
}

void write_other_files(const fs::path& folder, const TrainingState& state,
                       const LlamaConfig& config, const TokenizerCopy& tokenizer) {
  write_file(folder / kConfig, config_to_json(config, tokenizer.bos, tokenizer.eos));
  write_file(folder / kTokenizer, tokenizer.file);
  save_training_state(folder, state);
}

fs::path save_checkpoint(const fs::path& run, const TrainingState& state, const LlamaConfig& config,
                         const std::vector<SavedGroup>& groups, const TokenizerCopy& tokenizer) {
  UnfinishedCheckpoint unfinished(run, state.step);
  const fs::path& folder = unfinished.folder();
  write_other_files(folder, state, config, tokenizer);
  write_tensors(folder / part_name(kModelSet, 0, 1), kModelSet, groups.at(0).tensors);
  write_tensors(folder / part_name(kOptimizerSet, 0, 1), kOptimizerSet, optimizer_tensors(groups));
  return unfinished.publish();
}

LlamaStage load_model(const fs::path& checkpoint) {
  std::error_code ignored;
  require(fs::exists(checkpoint / kConfig, ignored), "{}: no checkpoint, it has no {}",
          checkpoint.string(), kConfig);
  verify_checkpoint(checkpoint, {kConfig});
  const LlamaConfig config = read_config_json(checkpoint / kConfig);
  CheckpointTensors source(checkpoint, kModelSet);
  require_proportion(config, source.count(), source.path(), kConfig);
  LlamaStage model(config, StageSpan::whole(config), Device::kCpu, /*seed=*/0);
  copy_all(source, saved_tensors(model, Sgd())[0].tensors, model);
  return model;
}

void load_for_training(const fs::path& checkpoint, LlamaStage& model, Optimizer& optimizer) {
  verify_checkpoint(checkpoint, {kConfig});
  const LlamaConfig config = read_config_json(checkpoint / kConfig);
  require(config == model.config(),
          "{}: describes a model of another size than the options of this run",
          (checkpoint / kConfig).string());
  const std::vector<SavedGroup> groups = saved_tensors(model, optimizer);
  CheckpointTensors weights(checkpoint, kModelSet);
  copy_all(weights, groups[0].tensors, model);
  CheckpointTensors state(checkpoint, kOptimizerSet);
  copy_all(state, optimizer_tensors(groups), model);
}

}  // namespace lab
