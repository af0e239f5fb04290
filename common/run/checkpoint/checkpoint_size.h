// Compares a model's sizes with the size of its file.
#pragma once

#include <filesystem>

#include "common/model/config.h"

namespace lab {

/// Throws Error if the sizes of a model, from the file `said_by`, imply far more memory than the
/// `held` weights in its file `weights`: a few bytes of text must not allocate gigabytes. This
/// covers the weights, and the rotary angles of all positions, which are not in the file.
void require_proportion(const LlamaConfig& config, double held,
                        const std::filesystem::path& weights, const char* said_by);

}  // namespace lab
