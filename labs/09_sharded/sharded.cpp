// Lab 09 · weights, gradients and the optimizer's state in shards. You write this file; sharded.h
// is its contract.
#include "labs/09_sharded/sharded.h"

#include <algorithm>
#include <cmath>

#include "common/comm/agreement.h"
#include "common/ops/ops.h"
#include "common/todo.h"

namespace lab09 {

int64_t padded(int64_t size, int ranks) {
  // TODO(1): the smallest multiple of `ranks` that is not less than `size`.
  lab::not_implemented("1", "labs/09_sharded/sharded.cpp");
}

Range owned(int64_t size, int rank, int ranks) {
  // TODO(1): this rank's shard of the padded part.
  lab::not_implemented("1", "labs/09_sharded/sharded.cpp");
}

void reduce_gradient(Sharded& sharded, size_t part) {
  // TODO(2): from this rank's gradient to its shard of the sum.
  //  1. Which elements of `gradient` are this rank's shard? They can receive the sum.
  //  2. Where does the sum belong in stage 1, and where in stages 2 and 3?
  lab::not_implemented("2", "labs/09_sharded/sharded.cpp");
}

void update(Sharded& sharded, float learning_rate) {
  // TODO(2): update the shards, one optimizer step for each part.
  //  1. What does each part's optimizer get?
  //  2. In which stages do the other ranks need the new weights now?
  lab::not_implemented("2", "labs/09_sharded/sharded.cpp");
}

void open_gradient(Sharded& sharded, size_t part) {
  // TODO(3): a gradient for the backward pass of this part.
  //  1. How many elements does it need, and which value?
  //  2. How does the model learn of it?
  lab::not_implemented("3", "labs/09_sharded/sharded.cpp");
}

void close_gradient(Sharded& sharded, size_t part) {
  // TODO(3): reduce it, and let go of its memory, in both places that hold it.
  lab::not_implemented("3", "labs/09_sharded/sharded.cpp");
}

void open_values(Sharded& sharded, const lab::LlamaStage::PartUse& use) {
  // TODO(4): the weights of this part now, those of the next one on their way.
  //  1. Is this part's all_gather under way already? If not, post it.
  //  2. Post the next part's, if there is a next one.
  //  3. Wait for one of the two, and bind it.
  lab::not_implemented("4", "labs/09_sharded/sharded.cpp");
}

void close_values(Sharded& sharded, size_t part) {
  // TODO(4): let go of the gathered weights, in both places that hold them.
  lab::not_implemented("4", "labs/09_sharded/sharded.cpp");
}

double clip_gradients(Sharded& sharded, double max_norm) {
  // TODO(5): the norm over all parts and all ranks; then scale this rank's shards.
  //  1. Which numbers can be added up, and where is the root?
  lab::not_implemented("5", "labs/09_sharded/sharded.cpp");
}

double train_step(Sharded& sharded, std::span<const lab::TokenBatch> microbatches,
                  const LossFunction& loss, float learning_rate, double max_norm) {
  // TODO(6): lab 02's step, in shards.
  //  1. How many targets do all ranks have?
  //  2. What is left from the step before, in which stage?
  //  3. For every microbatch: forward, loss, backward. By which number is the loss divided?
  //  4. What is still missing in stage 1?
  //  5. Clip, update.
  lab::not_implemented("6", "labs/09_sharded/sharded.cpp");
}

std::vector<Piece> pieces_of(int64_t size, int rank, int ranks, int saved_ranks) {
  // TODO(7): what the new shard and each saved one have in common, without padding.
  lab::not_implemented("7", "labs/09_sharded/sharded.cpp");
}

}  // namespace lab09
