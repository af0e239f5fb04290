// Checkpoints: a model in Hugging Face's form, and beside it what training needs to go on.
#include "common/train/checkpoint.h"

#include <set>
#include <vector>

#include "common/io/files.h"
#include "common/io/safetensors.h"
#include "common/tensor/error.h"
#include "common/train/checkpoint_folder.h"
#include "common/train/config_json.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kTokenizer = "tokenizer.model";

// Tensors of foreign files that this model computes itself.
bool can_be_ignored(const std::string& name, const LlamaConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tied_head && name == "lm_head.weight");
}

// Copies a file's tensors into `targets`, those of a stage. Of a whole model the names must be the
// same on both sides.
void copy_all(const Safetensors& file, const std::vector<NamedTensor>& targets,
              const LlamaStage& stage) {
  const LlamaConfig& config = stage.config();
  std::set<std::string> expected;
  for (const auto& [name, target] : targets) {
    target.copy_from(file.at(name, target.shape()));
    expected.insert(name);
  }
  if (stage.span() != StageSpan::whole(config)) return;  // the others are other stages'
  for (const auto& [name, tensor] : file.tensors)
    require(expected.contains(name) || can_be_ignored(name, config),
            "{}: tensor \"{}\" does not belong to a model of this kind and size",
            file.path.string(), name);
}

// Refuses a config.json that asks for far more memory than the weights fill, before it is taken.
void check_size(const LlamaConfig& config, const Safetensors& file) {
  double held = 0.0;
  for (const auto& [name, tensor] : file.tensors) held += static_cast<double>(tensor.numel());
  const auto dim = static_cast<double>(config.dim);
  const auto kv_dim = static_cast<double>(config.kv_heads * config.head_dim());
  const auto per_layer =
      2 * dim * (dim + kv_dim) + 3 * dim * static_cast<double>(config.hidden_dim);
  const double described =
      static_cast<double>(config.layers) * per_layer + static_cast<double>(config.vocab_size) * dim;
  require(described < 4.0 * held + 1e6,
          "{}: holds {:.0f} weights, but {} describes a model of {:.0f}", file.path.string(), held,
          kConfig, described);
}

}  // namespace

fs::path save_checkpoint(const fs::path& run, const TrainingState& state, const LlamaConfig& config,
                         const SavedTensors& tensors, const TokenizerCopy& tokenizer) {
  return publish_checkpoint(run, state.step, [&](const fs::path& folder) {
    write_file(folder / kConfig, config_to_json(config, tokenizer.bos, tokenizer.eos));
    // transformers insists on the entry "format".
    write_safetensors(folder / kModel, tensors.model, {{"format", "pt"}});
    write_safetensors(folder / kOptimizer, tensors.optimizer);
    write_file(folder / kTokenizer, tokenizer.file);
    save_training_state(folder, state);
  });
}

LlamaStage load_model(const fs::path& checkpoint) {
  std::error_code ignored;
  require(fs::exists(checkpoint / kConfig, ignored), "{}: no checkpoint, it has no {}",
          checkpoint.string(), kConfig);
  require(!fs::exists(checkpoint / "model.safetensors.index.json", ignored) ||
              fs::exists(checkpoint / kModel, ignored),
          "{}: weights in several files cannot be read; save them as one {}", checkpoint.string(),
          kModel);
  require(fs::exists(checkpoint / kModel, ignored), "{} is missing",
          (checkpoint / kModel).string());
  verify_checkpoint(checkpoint, {kConfig, kModel});
  const LlamaConfig config = read_config_json(checkpoint / kConfig);
  const Safetensors file = read_safetensors(checkpoint / kModel);
  check_size(config, file);
  LlamaStage model(config, StageSpan::whole(config), Device::kCpu, /*seed=*/0);
  copy_all(file, saved_tensors(model, Sgd()).model, model);
  return model;
}

void load_for_training(const fs::path& checkpoint, LlamaStage& model, Optimizer& optimizer) {
  verify_checkpoint(checkpoint);
  const LlamaConfig config = read_config_json(checkpoint / kConfig);
  require(config == model.config(),
          "{}: describes a model of another size than the options of this run",
          (checkpoint / kConfig).string());
  const SavedTensors tensors = saved_tensors(model, optimizer);
  copy_all(read_safetensors(checkpoint / kModel), tensors.model, model);
  copy_all(read_safetensors(checkpoint / kOptimizer), tensors.optimizer, model);
}

}  // namespace lab
