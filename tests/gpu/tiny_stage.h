// A step of learning by the tiny model on any device.
#pragma once

#include "common/run/training/training_functions.h"
#include "tests/unit/tiny_stage.h"

namespace lab::test {

/// Forward, loss and backward; returns the loss.
inline double learn(LlamaStage& model, const TokenBatch& batch, int microbatch = 0) {
  const Tensor logits = model.forward(batch, microbatch);
  const double loss = training_functions(model.device()).loss(logits, batch, 40);
  model.backward(logits, microbatch);
  return loss;
}

}  // namespace lab::test
