// What a model's sizes ask for, against what its file holds.
#pragma once

#include <filesystem>

#include "common/model/config.h"

namespace lab {

/// Throws Error if the sizes of a model, which `said_by` says, ask for far more memory than the
/// `held` weights of its file `weights` fill: a few bytes of text must not take gigabytes. That is
/// for the weights, and for the rotary angles of all positions, of which the weights say nothing.
void require_proportion(const LlamaConfig& config, double held,
                        const std::filesystem::path& weights, const char* said_by);

}  // namespace lab
