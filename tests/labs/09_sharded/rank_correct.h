// Correct versions of all tasks, in the place of the student's for tests of other tasks.
#pragma once

#include "labs/09_sharded/sharded.h"

namespace lab09 {

int64_t correct_padded(int64_t size, int ranks);
Range correct_owned(int64_t size, int rank, int ranks);
void correct_reduce_gradient(Sharded& sharded, size_t part);
void correct_update(Sharded& sharded, float learning_rate);
void correct_open_gradient(Sharded& sharded, size_t part);
void correct_close_gradient(Sharded& sharded, size_t part);
void correct_open_values(Sharded& sharded, const lab::LlamaStage::PartUse& use);
void correct_close_values(Sharded& sharded, size_t part);
double correct_clip_gradients(Sharded& sharded, double max_norm);
double correct_train_step(Sharded& sharded, std::span<const lab::TokenBatch> microbatches,
                          const LossFunction& loss, float learning_rate, double max_norm);

}  // namespace lab09
