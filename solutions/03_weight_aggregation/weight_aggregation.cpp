// Lab 03 · local steps, then the average of the weights: solution.
#include "labs/03_weight_aggregation/weight_aggregation.h"

#include <cmath>

#include "common/ops/ops.h"

namespace lab03 {

// Task 1a
double share_of(double examples, lab::ProcessGroup& world) {
  const lab::Tensor total = lab::Tensor::from({static_cast<float>(examples)}, {1});
  world.all_reduce(total);
  return examples / double{total.data()[0]};
}

// Task 1b
void average_weights(const lab::Tensor& weights, double share, lab::ProcessGroup& world) {
  lab::scale(weights, static_cast<float>(share));
  world.all_reduce(weights);
}

// Task 2
bool aggregation_due(int64_t step, int64_t every) { return step % every == 0; }

// Task 3
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const lab::LossFunction& loss,
                  float learning_rate, double max_gradient_norm, int64_t step,
                  const Aggregation& aggregation, lab::ProcessGroup& world) {
  const double own_loss =
      lab01::train_step(model, optimizer, microbatches, loss, learning_rate, max_gradient_norm);
  if (aggregation_due(step, aggregation.every))
    average_weights(model.parameters(), aggregation.share, world);
  return own_loss;
}

// Task 4
double drift(const lab::Tensor& weights, double share, lab::ProcessGroup& world) {
  const lab::Tensor average = weights.clone();
  average_weights(average, share, world);

  lab::add_scaled(weights, -1.0F, average);  // now the distance
  const double own = std::sqrt(lab::sum_of_squares(average));
  const lab::Tensor largest = lab::Tensor::from({static_cast<float>(own)}, {1});
  world.all_reduce(largest, lab::ReduceOp::kMax);
  return double{largest.data()[0]};
}

}  // namespace lab03
