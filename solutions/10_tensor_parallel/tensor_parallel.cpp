// Lab 10 · one layer over several ranks: solution.
#include "labs/10_tensor_parallel/tensor_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/tensor/parallel.h"
#include "common/tensor/vector_math.h"

namespace lab10 {

using lab::Tensor;

namespace {

/// Queries, keys and values of this rank's heads in a [N, Q+2K] matrix.
struct Qkv {
  Qkv(const lab::LlamaConfig& c, const Tensor& all) {
    const int64_t queries = c.heads * c.head_dim();
    const int64_t keys = c.kv_heads * c.head_dim();
    q = all.columns(0, queries);
    k = all.columns(queries, queries + keys);
    v = all.columns(queries + keys, queries + 2 * keys);
    rotated = all.columns(0, queries + keys);
  }
  Tensor q, k, v, rotated;
};

/// The row of each token in this rank's table; padding for those that others have.
std::vector<int32_t> rows_of(std::span<const int32_t> tokens, const lab::Range& vocabulary) {
  std::vector<int32_t> rows;
  for (const int32_t token : tokens) {
    const bool here = vocabulary.first <= token && token < vocabulary.last;
    rows.push_back(here ? token - static_cast<int32_t>(vocabulary.first) : lab::kPadding);
  }
  return rows;
}

/// The target of position i; padding if it predicts nothing.
int32_t target_of(const lab::TokenBatch& batch, int64_t i) {
  const bool last_of_row = (i + 1) % batch.length == 0;
  return last_of_row ? lab::kPadding : batch.tokens[static_cast<size_t>(i + 1)];
}

}  // namespace

// Task 1
void copy_to_ranks(const Tensor& x, Pass pass, lab::ProcessGroup& ranks) {
  if (pass == Pass::kBackward && ranks.size() > 1) ranks.all_reduce(x);
}

void sum_over_ranks(const Tensor& x, Pass pass, lab::ProcessGroup& ranks) {
  if (pass == Pass::kForward && ranks.size() > 1) ranks.all_reduce(x);
}

// Task 2
void column_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y,
                           lab::ProcessGroup& ranks) {
  copy_to_ranks(x, Pass::kForward, ranks);
  lab::linear_forward(x, weight.value, y);
}

void column_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                            const Tensor& dx, lab::ProcessGroup& ranks) {
  lab::linear_backward_weight(dy, x, weight.gradient);
  lab::linear_backward_input(dy, weight.value, dx);
  copy_to_ranks(dx, Pass::kBackward, ranks);
}

void row_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y,
                        lab::ProcessGroup& ranks) {
  lab::linear_forward(x, weight.value, y);
  sum_over_ranks(y, Pass::kForward, ranks);
}

void row_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                         const Tensor& dx, lab::ProcessGroup& ranks) {
  sum_over_ranks(dy, Pass::kBackward, ranks);
  lab::linear_backward_weight(dy, x, weight.gradient);
  lab::linear_backward_input(dy, weight.value, dx);
}

// Task 3
void mlp_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                 lab::LayerActivations& kept, const Tensor& output, lab::ProcessGroup& ranks) {
  const Tensor normed = Tensor::empty(kept.middle.shape());
  lab::rmsnorm_forward(kept.middle, weights.mlp_norm.value, shape.config.norm_eps, normed,
                       kept.mlp_inverse_rms);
  column_linear_forward(normed, weights.gate_up, kept.gate_up, ranks);
  const Tensor hidden = Tensor::empty({normed.size(0), shape.config.hidden_dim});
  lab::swiglu_forward(kept.gate_up, hidden);
  row_linear_forward(hidden, weights.down, output, ranks);
  lab::add(kept.middle, output);  // once, not once per rank
}

void mlp_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                  lab::LayerActivations& kept, const Tensor& gradient, lab::ProcessGroup& ranks) {
  // SwiGLU's output, which the gradient of `down` needs, is computed again, and so is the norm's.
  const Tensor hidden = Tensor::empty({gradient.size(0), shape.config.hidden_dim});
  lab::swiglu_forward(kept.gate_up, hidden);
  const Tensor hidden_gradient = Tensor::empty(hidden.shape());
  row_linear_backward(gradient, hidden, weights.down, hidden_gradient, ranks);
  lab::swiglu_backward(kept.gate_up, hidden_gradient);  // kept.gate_up is now its gradient

  const Tensor normed = Tensor::empty(gradient.shape());
  const Tensor normed_gradient = Tensor::empty(gradient.shape());
  lab::rmsnorm_apply(kept.middle, weights.mlp_norm.value, kept.mlp_inverse_rms, normed);
  column_linear_backward(kept.gate_up, normed, weights.gate_up, normed_gradient, ranks);
  lab::rmsnorm_backward(normed_gradient, kept.middle, weights.mlp_norm.value, kept.mlp_inverse_rms,
                        gradient, weights.mlp_norm.gradient);
}

// Task 4
void attention_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                       const Tensor& rope_angles, const Tensor& input, lab::LayerActivations& kept,
                       lab::ProcessGroup& ranks) {
  const Tensor normed = Tensor::empty(input.shape());
  lab::rmsnorm_forward(input, weights.attention_norm.value, shape.config.norm_eps, normed,
                       kept.attention_inverse_rms);
  column_linear_forward(normed, weights.qkv, kept.qkv, ranks);
  const Qkv qkv(shape.config, kept.qkv);
  lab::rope(qkv.rotated, rope_angles, shape.length, 0, lab::Rotation::kForward);
  lab::attention_forward(shape.attention(), qkv.q, qkv.k, qkv.v, kept.attention, kept.logsumexp);
  row_linear_forward(kept.attention, weights.attention_out, kept.middle, ranks);
  lab::add(input, kept.middle);
}

void attention_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                        const Tensor& rope_angles, const Tensor& input, lab::LayerActivations& kept,
                        const Tensor& gradient, lab::ProcessGroup& ranks) {
  const Tensor heads_gradient = Tensor::empty(kept.attention.shape());
  row_linear_backward(gradient, kept.attention, weights.attention_out, heads_gradient, ranks);
  const Qkv qkv(shape.config, kept.qkv);
  const Tensor qkv_gradient = Tensor::empty(kept.qkv.shape());
  const Qkv d(shape.config, qkv_gradient);
  lab::attention_backward(shape.attention(), heads_gradient, qkv.q, qkv.k, qkv.v, kept.attention,
                          kept.logsumexp, d.q, d.k, d.v);
  lab::rope(d.rotated, rope_angles, shape.length, 0, lab::Rotation::kBackward);

  const Tensor normed = Tensor::empty(input.shape());
  const Tensor normed_gradient = Tensor::empty(input.shape());
  lab::rmsnorm_apply(input, weights.attention_norm.value, kept.attention_inverse_rms, normed);
  column_linear_backward(qkv_gradient, normed, weights.qkv, normed_gradient, ranks);
  lab::rmsnorm_backward(normed_gradient, input, weights.attention_norm.value,
                        kept.attention_inverse_rms, gradient, weights.attention_norm.gradient);
}

// Task 5
void embed_forward(std::span<const int32_t> tokens, const lab::Weight& table,
                   const lab::Range& vocabulary, const Tensor& y, lab::ProcessGroup& ranks) {
  lab::embedding_forward(rows_of(tokens, vocabulary), table.value, y);
  sum_over_ranks(y, Pass::kForward, ranks);
}

void embed_backward(std::span<const int32_t> tokens, const Tensor& dy, const lab::Weight& table,
                    const lab::Range& vocabulary) {
  lab::embedding_backward(rows_of(tokens, vocabulary), dy, table.gradient);
}

double causal_lm_loss(const Tensor& logits, const lab::TokenBatch& batch, int64_t total_targets,
                      const lab::Range& vocabulary, lab::ProcessGroup& ranks) {
  const int64_t positions = batch.batch * batch.length;
  const int64_t width = logits.size(-1);
  const auto row = [&](int64_t i) {
    return std::span(logits.data() + i * width, static_cast<size_t>(width));
  };

  const Tensor largest = Tensor::empty({positions});
  lab::parallel_for(0, positions,
                    [&](int64_t i) { largest.data()[i] = *std::ranges::max_element(row(i)); });
  if (ranks.size() > 1) ranks.all_reduce(largest, lab::ReduceOp::kMax);

  // For each position, the sum of the exponentials and the target's score, which one rank has. Both
  // are relative to the largest score: near 10,000 a float has no third decimal.
  const Tensor sums = Tensor::zeros({2, positions});
  const std::span<float> exponentials = sums.rows(0, 1).values();
  const std::span<float> scores = sums.rows(1, 2).values();
  lab::parallel_for(0, positions, [&](int64_t i) {
    const auto p = static_cast<size_t>(i);
    const int32_t target = target_of(batch, i);
    if (vocabulary.first <= target && target < vocabulary.last)
      scores[p] = row(i)[static_cast<size_t>(target - vocabulary.first)] - largest.data()[i];
    double sum = 0.0;
    for (float& logit : row(i)) {
      logit = lab::fast_exp(logit - largest.data()[i]);
      sum += double{logit};
    }
    exponentials[p] = static_cast<float>(sum);
  });
  if (ranks.size() > 1) ranks.all_reduce(sums);

  const auto targets = static_cast<double>(std::max<int64_t>(total_targets, 1));
  const auto scale = static_cast<float>(1.0 / targets);
  lab::parallel_for(0, positions, [&](int64_t i) {
    const int32_t target = target_of(batch, i);
    if (target == lab::kPadding) {
      std::ranges::fill(row(i), 0.0F);
      return;
    }
    const float factor = scale / exponentials[static_cast<size_t>(i)];
    for (float& logit : row(i)) logit *= factor;
    if (vocabulary.first <= target && target < vocabulary.last)
      row(i)[static_cast<size_t>(target - vocabulary.first)] -= scale;
  });
  double loss = 0.0;
  for (int64_t i = 0; i < positions; ++i) {
    const auto p = static_cast<size_t>(i);
    if (target_of(batch, i) != lab::kPadding)
      loss += std::log(double{exponentials[p]}) - double{scores[p]};
  }
  return loss / targets;
}

// Task 6
Mesh make_mesh(lab::ProcessGroup& world, int dp, int pp, int tp) {
  lab::require(world.size() == dp * pp * tp,
               "{} pipelines of {} stages of {} slices need {} ranks, not {}", dp, pp, tp,
               dp * pp * tp, world.size());
  const Place place{.pipeline = world.rank() / (pp * tp),
                    .stage = world.rank() / tp % pp,
                    .slice = world.rank() % tp};
  const auto [pipeline, stage, slice] = place;
  lab::ProcessGroup slices = world.split(pipeline * pp + stage, slice,
                                         fmt::format("pipeline {}, stage {}", pipeline, stage));
  lab::ProcessGroup stages = world.split(pipeline * tp + slice, stage,
                                         fmt::format("pipeline {}, slice {}", pipeline, slice));
  lab::ProcessGroup replicas =
      world.split(stage * tp + slice, pipeline, fmt::format("stage {}, slice {}", stage, slice));
  lab::ProcessGroup model =
      world.split(pipeline, stage * tp + slice, fmt::format("model {}", pipeline));
  return {place, std::move(slices), std::move(stages), std::move(replicas), std::move(model)};
}

double clip_gradients(lab::LlamaStage& stage, double max_norm, lab::ProcessGroup& model) {
  const std::vector<double> squares = lab::gradient_squares(stage);
  const std::vector<lab::Parameter>& parameters = stage.named_parameters();
  double own = 0.0;
  for (size_t i = 0; i < squares.size(); ++i) {
    const bool on_every_slice = parameters[i].value.dims() == 1;
    if (!on_every_slice || stage.slice().rank == 0) own += squares[i];
  }
  const double norm = std::sqrt(lab::sum_over(model, own));
  if (norm > max_norm) lab::scale(stage.gradients(), static_cast<float>(max_norm / norm));
  return norm;
}

}  // namespace lab10
