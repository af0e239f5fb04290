// Lab 09 · weights, gradients and the optimizer's state in shards: solution.
#include "labs/09_sharded/sharded.h"

#include <algorithm>
#include <cmath>

#include "common/comm/agreement.h"
#include "common/ops/ops.h"

namespace lab09 {
namespace {

void post_gather(Sharded& sharded, size_t number) {
  Part& part = sharded.parts[number];
  if (part.values.defined()) return;
  part.values =
      lab::Tensor::empty({padded(part.size, sharded.world.size())}, sharded.model.device());
  part.gathering = sharded.world.all_gather_async(part.values, part.own_values);
}

}  // namespace

// Task 1
int64_t padded(int64_t size, int ranks) { return (size + ranks - 1) / ranks * ranks; }

Range owned(int64_t size, int rank, int ranks) {
  const int64_t shard = padded(size, ranks) / ranks;
  return {rank * shard, (rank + 1) * shard};
}

// Task 2
void reduce_gradient(Sharded& sharded, size_t part) {
  Part& p = sharded.parts[part];
  const Range own = owned(p.size, sharded.world.rank(), sharded.world.size());
  const lab::Tensor sum = p.gradient.rows(own.first, own.last);
  sharded.world.reduce_scatter(sum, p.gradient);
  if (sharded.stage > 1) lab::add(sum, p.own_gradient);
}

void update(Sharded& sharded, float learning_rate) {
  for (Part& part : sharded.parts) {
    part.optimizer->step(part.own_values, part.own_gradient, learning_rate);
    if (sharded.stage < 3) sharded.world.all_gather(part.values, part.own_values);
  }
}

// Task 3
void open_gradient(Sharded& sharded, size_t part) {
  Part& p = sharded.parts[part];
  p.gradient = lab::Tensor::zeros({padded(p.size, sharded.world.size())}, sharded.model.device());
  sharded.model.bind_gradient(part, p.gradient);
}

void close_gradient(Sharded& sharded, size_t part) {
  reduce_gradient(sharded, part);
  sharded.model.release_gradient(part);
  sharded.parts[part].gradient = {};
}

// Task 4
void open_values(Sharded& sharded, const lab::LlamaStage::PartUse& use) {
  Part& part = sharded.parts[use.part];
  post_gather(sharded, use.part);
  if (use.next) post_gather(sharded, *use.next);
  part.gathering->wait();
  part.gathering.reset();
  sharded.model.bind(use.part, part.values);
}

void close_values(Sharded& sharded, size_t part) {
  sharded.model.release(part);
  sharded.parts[part].values = {};
}

// Task 5
double clip_gradients(Sharded& sharded, double max_norm) {
  double squares = 0.0;
  for (const Part& part : sharded.parts) squares += lab::sum_of_squares(part.own_gradient);
  const double norm = std::sqrt(lab::sum_over(sharded.world, squares));
  if (norm > max_norm)
    for (const Part& part : sharded.parts)
      lab::scale(part.own_gradient, static_cast<float>(max_norm / norm));
  return norm;
}

// Task 6
double train_step(Sharded& sharded, std::span<const lab::TokenBatch> microbatches,
                  const LossFunction& loss, float learning_rate, double max_norm) {
  int64_t own_targets = 0;
  for (const lab::TokenBatch& batch : microbatches) own_targets += batch.target_count();
  const auto targets =
      static_cast<int64_t>(lab::sum_over(sharded.world, static_cast<double>(own_targets)));

  for (const Part& part : sharded.parts) {
    if (sharded.stage == 1) part.gradient.fill(0.0F);
    part.own_gradient.fill(0.0F);
  }
  double own_loss = 0.0;
  for (const lab::TokenBatch& batch : microbatches) {
    const lab::Tensor logits = sharded.model.forward(batch);
    own_loss += loss(logits, batch, targets);
    sharded.model.backward(logits);
  }
  if (sharded.stage == 1)
    for (size_t part = 0; part < sharded.parts.size(); ++part) reduce_gradient(sharded, part);
  if (max_norm > 0.0) clip_gradients(sharded, max_norm);
  update(sharded, learning_rate);
  return own_loss;
}

// Task 7
std::vector<Piece> pieces_of(int64_t size, int rank, int ranks, int saved_ranks) {
  const Range own = owned(size, rank, ranks);
  std::vector<Piece> pieces;
  for (int saved = 0; saved < saved_ranks; ++saved) {
    const Range theirs = owned(size, saved, saved_ranks);
    const int64_t first = std::max(own.first, theirs.first);
    const int64_t last = std::min({own.last, theirs.last, size});
    if (first < last)
      pieces.push_back({.rank = saved,
                        .from = {first - theirs.first, last - theirs.first},
                        .to = first - own.first});
  }
  return pieces;
}

}  // namespace lab09
