// LlamaConfig as the config.json of a Hugging Face checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/model/config.h"

namespace lab {

/// The text of a config.json that transformers' LlamaForCausalLM can open.
std::string config_to_json(const LlamaConfig& config, int32_t bos, int32_t eos);

/// Reads a config.json, our own or a foreign one. Missing fields have the defaults of transformers'
/// LlamaConfig. Throws Error naming the file and the field: not a LLaMA, a size out of range, or a
/// feature that this model does not have (scaled rotary angles, biases, ...).
LlamaConfig read_config_json(const std::filesystem::path& path);

/// Throws Error if the sizes of a model, from the file `said_by`, imply far more memory than the
/// `held` weights in its file `weights`: a few bytes of text must not allocate gigabytes. This
/// covers the weights, and the rotary angles of all positions, which are not in the file.
void require_proportion(const LlamaConfig& config, double held,
                        const std::filesystem::path& weights, const char* said_by);

}  // namespace lab
