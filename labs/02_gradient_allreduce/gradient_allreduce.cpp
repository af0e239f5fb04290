// Lab 02 · one training step on several ranks. You write this file; gradient_allreduce.h is its
// contract.
#include "labs/02_gradient_allreduce/gradient_allreduce.h"

#include <algorithm>
#include <vector>

#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/todo.h"

namespace lab02 {

void broadcast_parameters(lab::LlamaStage& model, lab::ProcessGroup& world) {
  // TODO(1): all ranks start from the weights of rank 0.
  //  1. Which tensor of the model holds all weights in one piece?
  //  2. Which operation copies the numbers of one rank to all? Which ranks call it?
  lab::not_implemented("1", "labs/02_gradient_allreduce/gradient_allreduce.cpp");
}

std::vector<int64_t> shard(std::span<const int64_t> order, int rank, int world_size) {
  // TODO(2): this rank's shard of an epoch.
  //  1. How many sequences does every rank get, if all get equally many?
  //  2. Which positions of `order` belong to this rank?
  lab::not_implemented("2", "labs/02_gradient_allreduce/gradient_allreduce.cpp");
}

void average_gradients(std::span<const lab::Tensor> gradients, int64_t targets,
                       lab::ProcessGroup& world) {
  // TODO(3): from the mean of each rank to the mean over the targets of all ranks.
  //  1. How many targets do all ranks have together? No rank knows; they have to find out.
  //  2. With which factor does this rank's mean enter the mean of all? What if there is no target?
  //  3. Flatten: copy the tensors one after the other into one, unless there is only one.
  //  4. Scale by this rank's factor, and add up over all ranks.
  //  5. Unflatten: copy the numbers back to where they came from.
  lab::not_implemented("3", "labs/02_gradient_allreduce/gradient_allreduce.cpp");
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, lab::ProcessGroup& world) {
  // TODO(4): one optimizer step of all ranks together.
  //  1. As in lab 01: count this rank's targets, zero the gradients, and for every microbatch
  //     forward, loss, backward. Over which targets is the loss a mean at this point?
  //  2. Average the gradients over the ranks.
  //  3. Clip, if max_gradient_norm asks for it; let the optimizer update the weights.
  //  4. Return this rank's own mean loss.
  lab::not_implemented("4", "labs/02_gradient_allreduce/gradient_allreduce.cpp");
}

double average_loss(double loss, int64_t targets, lab::ProcessGroup& world) {
  // TODO(5): the mean loss over the targets of all ranks. You have done this before, in this file.
  lab::not_implemented("5", "labs/02_gradient_allreduce/gradient_allreduce.cpp");
}

}  // namespace lab02
