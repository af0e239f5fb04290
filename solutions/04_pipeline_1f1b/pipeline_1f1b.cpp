// Lab 04 · one model cut over several ranks: solution.
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"

namespace lab04 {
namespace {

/// Layers of the last stage that make the slowest stage fastest. The other stages divide the rest
/// evenly, so the slowest of them has the quotient, rounded up.
int64_t layers_of_last(int64_t layers, int64_t stages, double head_cost) {
  if (stages == 1) return layers;
  int64_t best = 1;
  double best_cost = 0.0;
  for (int64_t last = 1; last <= layers - (stages - 1); ++last) {
    const int64_t most_of_others = (layers - last + stages - 2) / (stages - 1);
    const double cost =
        std::max(static_cast<double>(most_of_others), static_cast<double>(last) + head_cost);
    if (last == 1 || cost < best_cost) {
      best = last;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace

// Task 1
lab::Tensor forward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
                    lab::ProcessGroup& pipeline) {
  const int rank = pipeline.rank();
  lab::Tensor output;
  if (stage.span().embeds) {
    output = stage.forward(batch);
  } else {
    const auto input =
        lab::Tensor::empty({batch.batch, batch.length, stage.config().dim}, stage.device());
    pipeline.recv(input, rank - 1);
    output = stage.forward(input);
  }
  if (!stage.span().has_head) pipeline.send(output, rank + 1);
  return output;
}

// Task 2
void backward(lab::LlamaStage& stage, const lab::TokenBatch& batch,
              const lab::Tensor& logits_gradient, lab::ProcessGroup& pipeline) {
  const int rank = pipeline.rank();
  lab::Tensor output_gradient = logits_gradient;
  if (!stage.span().has_head) {
    output_gradient =
        lab::Tensor::empty({batch.batch, batch.length, stage.config().dim}, stage.device());
    pipeline.recv(output_gradient, rank + 1);
  }
  const lab::Tensor input_gradient = stage.backward(output_gradient);
  if (!stage.span().embeds) pipeline.send(input_gradient, rank - 1);
}

// Task 3
std::vector<lab::StageSpan> split(int64_t layers, int stages, double head_cost) {
  const int64_t last = layers_of_last(layers, stages, head_cost);
  std::vector<lab::StageSpan> spans;
  int64_t first_layer = 0;
  for (int64_t s = 0; s < stages; ++s) {
    const bool is_last = s == stages - 1;
    const int64_t sharing = stages - 1 - s;  // this stage and those after it, without the last
    const int64_t count = is_last ? last : (layers - last - first_layer) / sharing;
    spans.push_back({first_layer, first_layer + count, s == 0, is_last});
    first_layer += count;
  }
  return spans;
}

// Task 4
double clip_gradients(lab::LlamaStage& stage, double max_norm, lab::ProcessGroup& pipeline) {
  lab::require(max_norm > 0.0, "clip_gradients: max_norm is {}, it must be positive", max_norm);
  double own_squares = 0.0;
  for (const double squares : lab::gradient_squares(stage)) own_squares += squares;
  const double norm = std::sqrt(lab::sum_over(pipeline, own_squares));
  if (norm > max_norm) lab::scale(stage.gradients(), static_cast<float>(max_norm / norm));
  return norm;
}

// Task 5
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::TokenBatch& batch,
                  const LossFunction& loss, float learning_rate, double max_gradient_norm,
                  lab::ProcessGroup& pipeline) {
  const bool last = stage.span().has_head;
  stage.zero_gradients();
  const lab::Tensor output = forward(stage, batch, pipeline);
  const double mean_loss = last ? loss(output, batch, batch.target_count()) : 0.0;
  backward(stage, batch, last ? output : lab::Tensor(), pipeline);
  if (max_gradient_norm > 0.0) clip_gradients(stage, max_gradient_norm, pipeline);
  optimizer.step(stage.parameters(), stage.gradients(), learning_rate);
  return mean_loss;
}

}  // namespace lab04
