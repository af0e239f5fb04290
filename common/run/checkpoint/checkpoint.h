// Checkpoints: a model in Hugging Face's format, and the rest of what training needs to resume.
//
//   checkpoint-000200/
//     config.json             sizes of the model, as transformers reads them
//     model.safetensors       weights under Hugging Face's names
//     tokenizer.model         the tokenizer, copied
//     optimizer.safetensors   the optimizer's state: exp_avg.<name of weight>, ...
//     training.json           TrainingState
//     checksums.json          XXH3 of all the others
//
// If several ranks hold the model, weights and optimizer are saved in parts: see
// checkpoint_parts.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/model/llama_stage.h"
#include "common/optim/optimizer.h"
#include "common/run/checkpoint/saved_tensors.h"
#include "common/run/checkpoint/training_state.h"

namespace lab {

/// Token numbers and model file of a tokenizer, as a checkpoint stores them.
struct TokenizerCopy {
  std::string file;  // bytes of the .model
  int32_t bos = 0;
  int32_t eos = 0;
};

/// Writes checkpoint `state.step` of a run, all or nothing, and keeps the newest two.
/// `groups` are those of the whole model. Returns its folder. Throws Error (disk full, read-only,
/// ...); older checkpoints stay as they are.
std::filesystem::path save_checkpoint(const std::filesystem::path& run, const TrainingState& state,
                                      const LlamaConfig& config,
                                      const std::vector<SavedGroup>& groups,
                                      const TokenizerCopy& tokenizer);

/// Opens a model for inference: a checkpoint of ours, or any folder with config.json and
/// model.safetensors (or its parts and their index) of a LLaMA without the features that
/// `read_config_json` refuses. Throws Error naming file and tensor: missing, damaged, of another
/// shape, superfluous.
LlamaStage load_model(const std::filesystem::path& checkpoint);

/// Fills model and optimizer from a checkpoint of ours, whatever the number of its parts; `model`
/// may be one stage of it. Only the files that hold its tensors are read; each is verified. Throws
/// Error if the model is of another size or the optimizer of another kind.
void load_for_training(const std::filesystem::path& checkpoint, LlamaStage& model,
                       Optimizer& optimizer);

/// The parts of saving: one file with tensors of a set; and all files without tensors.
void write_tensors(const std::filesystem::path& file, const std::string& set,
                   const std::vector<NamedTensor>& tensors);
void write_other_files(const std::filesystem::path& folder, const TrainingState& state,
                       const LlamaConfig& config, const TokenizerCopy& tokenizer);

}  // namespace lab
