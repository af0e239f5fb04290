// Correct versions of all tasks, in the place of the student's for tests of other tasks.
#pragma once

#include "labs/09_sharded/sharded.h"

namespace lab09 {

/// A part's size with all ranks' shards of it: what the tests themselves count with.
inline int64_t whole_size(int64_t size, int ranks) {
  return size % ranks == 0 ? size : size + ranks - size % ranks;
}

namespace given_1 {
int64_t padded(int64_t size, int ranks);
Range owned(int64_t size, int rank, int ranks);
}  // namespace given_1

namespace given_2 {
void reduce_gradient(Sharded& sharded, size_t part);
void update(Sharded& sharded, float learning_rate);
}  // namespace given_2

namespace given_3 {
void open_gradient(Sharded& sharded, size_t part);
void close_gradient(Sharded& sharded, size_t part);
}  // namespace given_3

namespace given_4 {
void open_values(Sharded& sharded, const lab::LlamaStage::PartUse& use);
void close_values(Sharded& sharded, size_t part);
}  // namespace given_4

namespace given_5 {
double clip_gradients(Sharded& sharded, double max_norm);
}

namespace given_6 {
double train_step(Sharded& sharded, std::span<const lab::TokenBatch> microbatches,
                  const LossFunction& loss, float learning_rate, double max_norm);
}

}  // namespace lab09
