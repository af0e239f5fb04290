// LossFunction: what a training step minimises.
#pragma once

#include <cstdint>
#include <functional>

#include "common/data/batch.h"
#include "common/tensor/tensor.h"

namespace lab {

/// The causal language-model loss of a microbatch, as lab 01 writes it (causal_lm_loss): returns
/// the sum of the cross-entropies divided by `total_targets`, and overwrites the logits with the
/// gradient.
using LossFunction =
    std::function<double(const Tensor& logits, const TokenBatch& batch, int64_t total_targets)>;

}  // namespace lab
