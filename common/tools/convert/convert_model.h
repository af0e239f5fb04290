// Converts a trained model between formats: our checkpoints, Hugging Face's folders, llama2.c's
// files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/model/llama_stage.h"

namespace lab {

struct ConvertOptions {
  std::filesystem::path from;       // a checkpoint, a run, a folder of Hugging Face, or a .bin
  std::filesystem::path to;         // NAME.bin, or a folder; must not exist
  std::filesystem::path tokenizer;  // empty: that of `from`, if it has one
  std::optional<float> norm_eps;    // for a .bin, which does not contain it; default: llama2.c's
};

/// A model, and what is known about its tokenizer.
struct OpenModel {
  LlamaStage model;
  std::string tokenizer;  // bytes of the tokenizer.model; empty: it has none
  int32_t bos = 1;        // as LLaMA's
  int32_t eos = 2;
};

/// Throws Error naming the file: missing, damaged, of another kind, with weights that are not
/// numbers; or the tokenizer is for another vocabulary.
OpenModel open_model(const ConvertOptions& options);

/// Throws Error if `to` exists, whatever it is.
void check_target_is_free(const std::filesystem::path& to);

/// Writes a folder that transformers can open: config.json, model.safetensors and, if there is one,
/// tokenizer.model. The folder appears at once and complete, or not at all. Throws Error if it
/// exists.
void write_model_folder(const std::filesystem::path& folder, const OpenModel& model);

}  // namespace lab
