// The two blocks of a layer, whole: what tasks 3 and 4 are compared with.
#pragma once

#include <cstdint>

#include "tests/grading/verdict.h"

namespace lab10 {

enum class Block { kMlp, kAttention };

/// Draws layers and microbatches, runs the block's forward and backward pass in one or more groups
/// of `ranks` ranks, and judges outputs, gradients and messages on each.
void expect_block(Block block, int ranks, uint64_t seed, lab::grading::JobOptions options,
                  size_t groups = 1);

}  // namespace lab10
