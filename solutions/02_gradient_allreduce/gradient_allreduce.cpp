// Lab 02 · one training step on several ranks: solution.
#include "labs/02_gradient_allreduce/gradient_allreduce.h"

#include <vector>

#include "common/ops/ops.h"
#include "common/optim/clip.h"

namespace lab02 {
namespace {

/// This rank's part of the targets of all ranks; 0 if no rank has any.
float share_of_targets(int64_t targets, lab::ProcessGroup& world) {
  const lab::Tensor total = lab::Tensor::from({static_cast<float>(targets)}, {1});
  world.all_reduce(total);
  return targets > 0 ? static_cast<float>(targets) / total.data()[0] : 0.0F;
}

lab::Tensor flatten(std::span<const lab::Tensor> tensors) {
  int64_t size = 0;
  for (const lab::Tensor& tensor : tensors) size += tensor.numel();
  const lab::Tensor flat = lab::Tensor::empty({size}, tensors[0].device());
  int64_t next = 0;
  for (const lab::Tensor& tensor : tensors) {
    flat.rows(next, next + tensor.numel()).copy_from(tensor.view({tensor.numel()}));
    next += tensor.numel();
  }
  return flat;
}

void unflatten(const lab::Tensor& flat, std::span<const lab::Tensor> tensors) {
  int64_t next = 0;
  for (const lab::Tensor& tensor : tensors) {
    tensor.view({tensor.numel()}).copy_from(flat.rows(next, next + tensor.numel()));
    next += tensor.numel();
  }
}

}  // namespace

// Task 1
void broadcast_parameters(lab::LlamaStage& model, lab::ProcessGroup& world) {
  world.broadcast(model.parameters(), /*root=*/0);
}

// Task 2
std::vector<int64_t> shard(std::span<const int64_t> order, int rank, int world_size) {
  const auto ranks = static_cast<size_t>(world_size);
  const size_t length = order.size() / ranks;
  std::vector<int64_t> share;
  for (size_t i = 0; i < length; ++i) share.push_back(order[i * ranks + static_cast<size_t>(rank)]);
  return share;
}

// Task 3
void average_gradients(std::span<const lab::Tensor> gradients, int64_t targets,
                       lab::ProcessGroup& world) {
  const float share = share_of_targets(targets, world);
  const bool one = gradients.size() == 1;
  const lab::Tensor flat = one ? gradients[0] : flatten(gradients);
  lab::scale(flat, share);
  world.all_reduce(flat);
  if (!one) unflatten(flat, gradients);
}

// Task 4
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, lab::ProcessGroup& world) {
  int64_t own_targets = 0;
  for (const lab::TokenBatch& batch : microbatches) own_targets += batch.target_count();

  model.zero_gradients();
  double own_loss = 0.0;
  for (const lab::TokenBatch& batch : microbatches) {
    const lab::Tensor logits = model.forward(batch);
    own_loss += loss(logits, batch, own_targets);
    model.backward(logits);
  }
  const lab::Tensor gradients = model.gradients();
  average_gradients({&gradients, 1}, own_targets, world);
  if (max_gradient_norm > 0.0) lab::clip_gradients(model, max_gradient_norm);
  optimizer.step(model.parameters(), gradients, learning_rate);
  return own_loss;
}

// Task 5
double average_loss(double loss, int64_t targets, lab::ProcessGroup& world) {
  const float share = share_of_targets(targets, world);
  const lab::Tensor mean = lab::Tensor::from({static_cast<float>(loss) * share}, {1});
  world.all_reduce(mean);
  return mean.data()[0];
}

}  // namespace lab02
