// Lab 03 · local steps, then the average of the weights. You write this file; weight_aggregation.h
// is its contract.
#include "labs/03_weight_aggregation/weight_aggregation.h"

#include <cmath>

#include "common/ops/ops.h"
#include "common/todo.h"

namespace lab03 {

double share_of(double examples, lab::ProcessGroup& world) {
  // TODO(1a): this rank's part of all examples.
  //  1. How many do all ranks have together? Each knows only its own number. lab::Tensor::from
  //     makes a tensor of one element.
  //  2. Return the quotient.
  lab::not_implemented("1a", "labs/03_weight_aggregation/weight_aggregation.cpp");
}

void average_weights(const lab::Tensor& weights, double share, lab::ProcessGroup& world) {
  // TODO(1b): replace the weights by the average of all ranks' weights.
  //  1. What does this rank contribute to the sum?
  //  2. Sum over the ranks, so that every rank has the result.
  //  3. Is the result in the memory that the model computes with? A Tensor is a handle.
  lab::not_implemented("1b", "labs/03_weight_aggregation/weight_aggregation.cpp");
}

bool aggregation_due(int64_t step, int64_t every) {
  // TODO(2): after steps k, 2k, 3k, ...; steps count from 1.
  lab::not_implemented("2", "labs/03_weight_aggregation/weight_aggregation.cpp");
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const lab::LossFunction& loss,
                  float learning_rate, double max_gradient_norm, int64_t step,
                  const Aggregation& aggregation, lab::ProcessGroup& world) {
  // TODO(3): one step of local SGD.
  //  1. This rank's own step: lab 01 has it.
  //  2. If it is due, the average of the weights: model.parameters().
  //  3. Return this rank's loss.
  lab::not_implemented("3", "labs/03_weight_aggregation/weight_aggregation.cpp");
}

double drift(const lab::Tensor& weights, double share, lab::ProcessGroup& world) {
  // TODO(4): the largest distance of a rank's weights from the average.
  //  1. The average, without changing the model. What do you average, then?
  //  2. This rank's distance: the root of the sum of all squared differences, in double.
  //  3. The largest distance of all ranks: which lab::ReduceOp?
  lab::not_implemented("4", "labs/03_weight_aggregation/weight_aggregation.cpp");
}

}  // namespace lab03
