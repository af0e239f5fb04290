#include "tests/labs/09_sharded/rank_correct.h"

#include <cmath>

#include "common/error.h"
#include "common/ops/ops.h"
#include "tests/grading/implementation.h"

namespace lab09 {

using lab::Tensor;

namespace given_1 {

LAB_GIVEN int64_t padded(int64_t size, int ranks) { return whole_size(size, ranks); }

LAB_GIVEN Range owned(int64_t size, int rank, int ranks) {
  const int64_t each = whole_size(size, ranks) / ranks;
  return {.first = each * rank, .last = each * rank + each};
}

}  // namespace given_1

namespace given_2 {

LAB_GIVEN void reduce_gradient(Sharded& sharded, size_t part) {
  Part& p = sharded.parts.at(part);
  lab::require(p.gradient.defined(), "reduce_gradient: part {} has no gradient", part);
  const Tensor sum = Tensor::zeros(p.own_gradient.shape());
  sharded.world.reduce_scatter(sum, p.gradient);
  if (sharded.stage == 1)
    p.own_gradient.copy_from(sum);
  else
    lab::add(sum, p.own_gradient);
}

LAB_GIVEN void update(Sharded& sharded, float learning_rate) {
  for (Part& p : sharded.parts) p.optimizer->step(p.own_values, p.own_gradient, learning_rate);
  if (sharded.stage == 3) return;
  for (Part& p : sharded.parts) sharded.world.all_gather(p.values, p.own_values);
}

}  // namespace given_2

namespace given_3 {

LAB_GIVEN void open_gradient(Sharded& sharded, size_t part) {
  Part& p = sharded.parts.at(part);
  p.gradient = Tensor::zeros({whole_size(p.size, sharded.world.size())});
  sharded.model.bind_gradient(part, p.gradient);
}

LAB_GIVEN void close_gradient(Sharded& sharded, size_t part) {
  lab09::reduce_gradient(sharded, part);
  sharded.model.release_gradient(part);
  sharded.parts.at(part).gradient = {};
}

}  // namespace given_3

namespace given_4 {

LAB_GIVEN void open_values(Sharded& sharded, const lab::LlamaStage::PartUse& use) {
  const auto begin = [&](size_t part) {
    Part& p = sharded.parts.at(part);
    if (p.values.defined()) return;
    p.values = Tensor::empty({whole_size(p.size, sharded.world.size())});
    p.gathering = sharded.world.all_gather_async(p.values, p.own_values);
  };
  begin(use.part);
  if (use.next) begin(*use.next);
  Part& p = sharded.parts.at(use.part);
  if (p.gathering) p.gathering->wait();
  p.gathering = {};
  sharded.model.bind(use.part, p.values);
}

LAB_GIVEN void close_values(Sharded& sharded, size_t part) {
  sharded.parts.at(part).values = {};
  sharded.model.release(part);
}

}  // namespace given_4

namespace {

double sum_of(lab::ProcessGroup& world, double mine) {
  const Tensor sum = Tensor::from({static_cast<float>(mine)}, {1});
  world.all_reduce(sum);
  return double{sum.data()[0]};
}

}  // namespace

namespace given_5 {

LAB_GIVEN double clip_gradients(Sharded& sharded, double max_norm) {
  double own = 0;
  for (const Part& p : sharded.parts)
    for (float g : p.own_gradient.values()) own += double{g} * double{g};
  const double norm = std::sqrt(sum_of(sharded.world, own));
  if (norm <= max_norm) return norm;
  for (const Part& p : sharded.parts)
    for (float& g : p.own_gradient.values()) g *= static_cast<float>(max_norm / norm);
  return norm;
}

}  // namespace given_5

namespace given_6 {

LAB_GIVEN double train_step(Sharded& sharded, std::span<const lab::TokenBatch> microbatches,
                            const LossFunction& loss, float learning_rate, double max_norm) {
  double own = 0;
  for (const lab::TokenBatch& batch : microbatches)
    own += static_cast<double>(batch.target_count());
  const auto all = static_cast<int64_t>(sum_of(sharded.world, own));
  for (Part& p : sharded.parts) {
    p.own_gradient.fill(0);
    if (p.gradient.defined()) p.gradient.fill(0);
  }
  double sum = 0;
  for (const lab::TokenBatch& batch : microbatches) {
    const Tensor logits = sharded.model.forward(batch);
    sum += loss(logits, batch, all);
    sharded.model.backward(logits);
  }
  for (size_t p = 0; p < sharded.parts.size() && sharded.stage == 1; ++p)
    lab09::reduce_gradient(sharded, p);
  if (max_norm > 0) lab09::clip_gradients(sharded, max_norm);
  lab09::update(sharded, learning_rate);
  return sum;
}

}  // namespace given_6

}  // namespace lab09
