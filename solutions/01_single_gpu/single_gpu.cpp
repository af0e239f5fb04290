// Lab 01 · the training step on one device: solution.
#include "labs/01_single_gpu/single_gpu.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/optim/clip.h"
#include "common/tensor/parallel.h"
#include "common/tensor/vector_math.h"

namespace lab01 {

// Task 1a
double cross_entropy(std::span<float> logits, int32_t target, float scale) {
  float largest = logits[0];  // no std::max below: it takes references, so the loop stays scalar
#pragma omp simd reduction(max : largest)
  for (size_t v = 0; v < logits.size(); ++v) largest = logits[v] > largest ? logits[v] : largest;
  const double target_score = double{logits[target]} - largest;

  // At least 1, as the largest score contributes e^0. In float, many small ones would be rounded
  // off.
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (size_t v = 0; v < logits.size(); ++v) {
    logits[v] = lab::fast_exp(logits[v] - largest);
    sum += double{logits[v]};
  }

  const auto factor = static_cast<float>(scale / sum);
  for (float& logit : logits) logit *= factor;
  logits[target] -= scale;
  return std::log(sum) - target_score;
}

// Task 1b
double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets) {
  const int64_t vocab = logits.size(-1);
  const int64_t positions = batch.batch * batch.length;
  const auto targets = static_cast<double>(std::max<int64_t>(total_targets, 1));
  const auto scale = static_cast<float>(1.0 / targets);

  std::vector<double> losses(static_cast<size_t>(positions), 0.0);
  lab::parallel_for(0, positions, [&](int64_t i) {
    const std::span row(logits.data() + i * vocab, static_cast<size_t>(vocab));
    const bool last_of_row = (i + 1) % batch.length == 0;
    const int32_t target = last_of_row ? lab::kPadding : batch.tokens[i + 1];
    if (target == lab::kPadding)
      std::ranges::fill(row, 0.0F);
    else
      losses[i] = cross_entropy(row, target, scale);
  });
  // Added in order, whichever thread computed them: the same bits in every run.
  return std::accumulate(losses.begin(), losses.end(), 0.0) / targets;
}

// Task 2
void adam_update(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 std::span<float> parameters, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment) {
  const float beta1 = config.beta1;
  const float beta2 = config.beta2;
  const float epsilon = config.epsilon;
  // In double: with beta^step rounded to float, 1 - beta2^step is off by up to 7e-6 of itself.
  const auto correction1 = static_cast<float>(1.0 - std::pow(double{beta1}, step));
  const auto correction2 = static_cast<float>(1.0 - std::pow(double{beta2}, step));

#pragma omp simd
  for (size_t i = 0; i < parameters.size(); ++i) {
    const float gradient = gradients[i];
    const float m = beta1 * first_moment[i] + (1.0F - beta1) * gradient;
    const float v = beta2 * second_moment[i] + (1.0F - beta2) * gradient * gradient;
    parameters[i] -= learning_rate * (m / correction1) / (std::sqrt(v / correction2) + epsilon);
    first_moment[i] = m;
    second_moment[i] = v;
  }
}

// Task 3
double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm) {
  int64_t total_targets = 0;
  for (const lab::TokenBatch& batch : microbatches) total_targets += batch.target_count();

  model.zero_gradients();
  double mean_loss = 0.0;
  for (const lab::TokenBatch& batch : microbatches) {
    const lab::Tensor logits = model.forward(batch);
    mean_loss += loss(logits, batch, total_targets);
    model.backward(logits);  // by now they hold their gradient
  }
  if (max_gradient_norm > 0.0) lab::clip_gradients(model, max_gradient_norm);
  optimizer.step(model.parameters(), model.gradients(), learning_rate);
  return mean_loss;
}

}  // namespace lab01
