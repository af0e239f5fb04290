// --check-gradients: are the gradients of causal_lm_loss and train_step those of the losses that
// they return? The finite differences are in common/optim/gradient_check.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/optim/gradient_check.h"
#include "common/optim/optimizer.h"
#include "common/tensor/parallel.h"
#include "common/tensor/tensor.h"
#include "common/todo.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace lab01 {

/// A gradient is wrong if it differs from the finite differences by more than this part of its
/// length.
inline constexpr double kGradientTolerance = 0.01;

/// Of many checks, the one with the largest error.
struct WorstCheck {
  std::string where;
  lab::GradientCheck check;

  void add(const std::string& place, const lab::GradientCheck& other) {
    if (!where.empty() && !(other.error() > check.error())) return;
    where = place;
    check = other;
  }
};

/// causal_lm_loss on random scores, each of which is moved alone. Errors are relative to the
/// gradient of all scores.
inline WorstCheck check_loss(LossFunction loss, float step) {
  const lab::TokenBatch batch{2, 4, {3, 1, 4, 1, 5, 0, lab::kPadding, lab::kPadding}};
  const int64_t vocab = 6;
  const int64_t total_targets = 6;  // two of them in another microbatch
  lab::Tensor logits = lab::Tensor::zeros({batch.batch, batch.length, vocab});
  for (size_t i = 0; i < logits.values().size(); ++i)
    logits.values()[i] = 2 * std::sin(static_cast<float>(i + i * i));
  const lab::Tensor gradient = logits.clone();
  loss(gradient, batch, total_targets);

  double square = 0;
  for (const float g : gradient.values()) square += double{g} * g;
  WorstCheck worst;
  for (size_t i = 0; i < logits.values().size(); ++i) {
    lab::GradientCheck check = lab::check_gradient(
        logits.values().subspan(i, 1), gradient.values().subspan(i, 1),
        [&] { return loss(logits.clone(), batch, total_targets); }, step);
    check.size = std::sqrt(square);
    const size_t row = i / static_cast<size_t>(vocab);
    worst.add(fmt::format("row {}, position {}, piece {}", row / 4, row % 4,
                          i % static_cast<size_t>(vocab)),
              check);
  }
  return worst;
}

/// train_step on a small model and two microbatches with unequal numbers of targets. The learning
/// rate is 0, so that a step changes no weight. Each weight tensor is moved as a whole.
inline WorstCheck check_step(LossFunction loss, float step) {
  const lab::LlamaConfig config{.vocab_size = 32,
                                .dim = 32,
                                .heads = 2,
                                .kv_heads = 2,
                                .layers = 2,
                                .hidden_dim = 64,
                                .context = 8,
                                .init_std = 0.2F};
  lab::LlamaStage model(config, lab::StageSpan::whole(config), lab::Device::kCpu, 1);
  std::vector<lab::TokenBatch> microbatches = {{2, 8, {}}, {1, 8, {}}};
  for (lab::TokenBatch& batch : microbatches)
    for (int32_t i = 0; i < batch.batch * batch.length; ++i)
      batch.tokens.push_back((7 * i * i + i) % 32);
  std::ranges::fill(std::span(microbatches[1].tokens).subspan(3), lab::kPadding);

  lab::Sgd sgd;
  const auto mean_loss = [&] { return train_step(model, sgd, microbatches, loss, 0.0F, 0.0); };
  std::ranges::fill(model.gradients().values(), 1.0F);  // left over from before
  mean_loss();
  const lab::Tensor all = model.gradients().clone();

  WorstCheck worst;
  for (const lab::Parameter& p : model.named_parameters()) {
    const auto offset = static_cast<size_t>(p.value.data() - model.parameters().data());
    const std::span values = p.value.values();
    worst.add(p.name, lab::check_gradient(values, all.values().subspan(offset, values.size()),
                                          mean_loss, step));
  }
  return worst;
}

/// Prints a check's error for several steps h and, at the step where it is smallest, the place with
/// the largest error. Returns whether the gradient is right there.
template <typename Check>
bool report_check(const char* what, float best, const Check& check) {
  const WorstCheck worst = check(best);
  fmt::print("{}\n{:>8}   largest error, relative to the whole gradient's length\n", what, "h");
  for (const float h : {1e-1F, 1e-2F, 1e-3F, 1e-4F, 1e-5F, 1e-6F})
    fmt::print("{:8g}   {:11.4f} %\n", h, 100 * check(h).check.error());
  const bool right = worst.check.error() < kGradientTolerance;  // false for NaN
  fmt::print("{}, with h = {:g}; largest error at {}: gradient {:.5f}, difference {:.5f}\n",
             right ? "right" : "WRONG", best, worst.where, worst.check.gradient,
             worst.check.difference);
  return right;
}

/// Compares both gradients with (L(x + h) - L(x - h)) / 2h, train_step's only once it is written.
/// Returns main's exit code: 1 if one is wrong.
inline int check_gradients(LossFunction loss) {
  lab::set_thread_count(1);  // with so little work, more threads would mostly wait
  const bool loss_is_right = report_check("causal_lm_loss: 48 scores, each moved by h alone", 1e-2F,
                                          [&](float h) { return check_loss(loss, h); });
  fmt::print("\n");
  try {
    const bool step_is_right =
        report_check("train_step: 21 tensors of weights, each moved by h as a whole", 1e-3F,
                     [&](float h) { return check_step(loss, h); });
    return loss_is_right && step_is_right ? 0 : 1;
  } catch (const lab::NotImplemented& error) {
    fmt::print("train_step is not checked yet: {}\n", error.what());
    return loss_is_right ? 0 : 1;
  }
}

}  // namespace lab01
