// The rank program of lab 01: calls an implementation's functions on what the verdict sends.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/grading/rank_main.h"
#include "common/tensor/error.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/labs/01_single_gpu/reference.h"
#include "tests/labs/01_single_gpu/short_turns.h"
#include "tests/labs/01_single_gpu/train_step_log.h"

namespace lab01 {
namespace {

using lab::Tensor;
using lab::TokenBatch;
using lab::grading::Parcel;

/// Task 1a on every row of `logits` [N, V], with `targets` and `scales`.
Parcel run_cross_entropy(const Parcel& input) {
  const Tensor logits = input.tensor("logits");
  const std::vector<double> targets = input.numbers("targets");
  const std::vector<double> scales = input.numbers("scales");
  const auto vocab = static_cast<size_t>(logits.size(-1));

  constexpr float kFence = 12345.0F;  // left and right of the row; must not change
  bool fence_broken = false;
  std::vector<double> losses;
  for (size_t n = 0; n < targets.size(); ++n) {
    std::vector<float> fenced(vocab + 2, kFence);
    const std::span<float> row = logits.values().subspan(n * vocab, vocab);
    std::ranges::copy(row, fenced.begin() + 1);
    losses.push_back(cross_entropy(std::span(fenced).subspan(1, vocab),
                                   static_cast<int32_t>(targets[n]),
                                   static_cast<float>(scales[n])));
    fence_broken = fence_broken || fenced.front() != kFence || fenced.back() != kFence;
    std::copy_n(fenced.begin() + 1, vocab, row.begin());
  }
  Parcel result;
  result.set("losses", losses);
  result.set("gradients", logits);
  result.set("fence_broken", fence_broken ? 1.0 : 0.0);
  return result;
}

bool is_close(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max(std::abs(b), 1.0); }

/// Whether row n of both is the same, up to another order of the same sums.
bool same_row(const Tensor& a, const Tensor& b, int64_t n) {
  const Tensor row = a.rows(n, n + 1);
  return std::ranges::equal(row.values(), b.rows(n, n + 1).values(), is_close);
}

/// Task 1a on every row of `logits` [N, V] by one thread, then up to `repeat` times by several at
/// once. Returns how many of the rows then had another result, in the first round with one.
Parcel run_cross_entropy_by_threads(const Parcel& input) {
  const Tensor logits = input.tensor("logits");
  const std::vector<double> targets = input.numbers("targets");
  const auto run_row = [&](const Tensor& all, int64_t n) {
    return cross_entropy(all.rows(n, n + 1).values(),
                         static_cast<int32_t>(targets[static_cast<size_t>(n)]), 1.0F);
  };
  const Tensor alone = logits.clone();
  std::vector<double> losses_alone;
  for (int64_t n = 0; n < logits.size(0); ++n) losses_alone.push_back(run_row(alone, n));

  fmt::print("several threads call cross_entropy at once\n");  // shown if it crashes
  std::fflush(stdout);
  const ShortTurns turns;
  double others = 0;
  const auto rounds = static_cast<int>(input.number("repeat"));
  for (int round = 0; round < rounds && others == 0 && !turns.long_enough(); ++round) {
    const Tensor together = logits.clone();
    std::vector<double> losses(targets.size());
    lab::parallel_for(0, logits.size(0),
                      [&](int64_t n) { losses[static_cast<size_t>(n)] = run_row(together, n); });
    for (size_t n = 0; n < losses.size(); ++n)
      others += !is_close(losses[n], losses_alone[n]) ||
                !same_row(together, alone, static_cast<int64_t>(n));
  }
  Parcel result;
  result.set("others", others);
  return result;
}

double causal_lm_loss_of(const Parcel& input, const Tensor& logits) {
  return causal_lm_loss(logits, input.batch("tokens"),
                        static_cast<int64_t>(input.number("total_targets")));
}

/// Task 1b.
Parcel run_causal_lm_loss(const Parcel& input) {
  const Tensor logits = input.tensor("logits").clone();
  Parcel result;
  result.set("losses", causal_lm_loss_of(input, logits));
  result.set("gradients", logits);
  return result;
}

/// Task 1b up to `repeat` times on the same input, by threads that interrupt each other; ends with
/// the first loss that is another one than that before.
Parcel run_causal_lm_loss_by_threads(const Parcel& input) {
  const ShortTurns turns;
  std::vector<double> losses;
  const auto differs = [&] { return !losses.empty() && losses.front() != losses.back(); };
  const auto repeat = static_cast<size_t>(input.number("repeat"));
  while (losses.size() < repeat && !differs() && !turns.long_enough())
    losses.push_back(causal_lm_loss_of(input, input.tensor("logits").clone()));
  Parcel result;
  result.set("losses", losses);
  return result;
}

/// Task 2: one update per row of `gradients` [S, n], the first one numbered `step`, in blocks of
/// `block` elements. Returns parameters and moments after each update, [S, n].
Parcel run_adam_update(const Parcel& input) {
  const lab::AdamConfig config{.beta1 = static_cast<float>(input.number("beta1")),
                               .beta2 = static_cast<float>(input.number("beta2")),
                               .epsilon = static_cast<float>(input.number("epsilon"))};
  const auto learning_rate = static_cast<float>(input.number("learning_rate"));
  const auto block = static_cast<int64_t>(input.number("block"));
  const Tensor gradients = input.tensor("gradients");
  const Tensor w = input.tensor("parameters").clone();
  const Tensor m = input.tensor("first_moment").clone();
  const Tensor v = input.tensor("second_moment").clone();
  const Tensor all_w = Tensor::empty(gradients.shape());
  const Tensor all_m = Tensor::empty(gradients.shape());
  const Tensor all_v = Tensor::empty(gradients.shape());
  for (int64_t s = 0; s < gradients.size(0); ++s) {
    const std::span<float> g = gradients.rows(s, s + 1).values();
    lab::parallel_blocks(w.numel(), block, [&](int64_t first, int64_t last) {
      const auto part = [&](std::span<float> all) {
        return all.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
      };
      adam_update(config, learning_rate, static_cast<int64_t>(input.number("step")) + s,
                  part(w.values()), part(g), part(m.values()), part(v.values()));
    });
    std::ranges::copy(w.values(), all_w.rows(s, s + 1).data());
    std::ranges::copy(m.values(), all_m.rows(s, s + 1).data());
    std::ranges::copy(v.values(), all_v.rows(s, s + 1).data());
  }
  Parcel result;
  result.set("parameters", all_w);
  result.set("first_moment", all_m);
  result.set("second_moment", all_v);
  return result;
}

/// Small enough for milliseconds, with every kind of weight; large initial values, so that the
/// gradients of all of them are well above rounding.
lab::LlamaStage tiny_model() {
  const lab::LlamaConfig config{.vocab_size = 24,
                                .dim = 16,
                                .heads = 2,
                                .kv_heads = 1,
                                .layers = 2,
                                .hidden_dim = 24,
                                .context = 8,
                                .init_std = 0.3F};
  return {config, lab::StageSpan::whole(config), lab::Device::kCpu, 7};
}

std::vector<TokenBatch> microbatches(const Parcel& input) {
  std::vector<TokenBatch> batches;
  for (int k = 0; k < static_cast<int>(input.number("microbatches")); ++k)
    batches.push_back(input.batch("microbatch" + std::to_string(k)));
  return batches;
}

/// The Adam update as the paper writes it, for the optimizer that task 3 is tested with.
void plain_adam(const lab::AdamConfig& config, float learning_rate, int64_t step,
                std::span<float> w, std::span<const float> g, std::span<float> m,
                std::span<float> v) {
  const double correction1 = 1 - std::pow(double{config.beta1}, step);
  const double correction2 = 1 - std::pow(double{config.beta2}, step);
  for (size_t i = 0; i < w.size(); ++i) {
    m[i] = config.beta1 * m[i] + (1 - config.beta1) * g[i];
    v[i] = config.beta2 * v[i] + (1 - config.beta2) * g[i] * g[i];
    w[i] -= static_cast<float>(learning_rate * (m[i] / correction1) /
                               (std::sqrt(v[i] / correction2) + config.epsilon));
  }
}

std::unique_ptr<lab::Optimizer> make_optimizer(const std::string& name, int64_t size) {
  if (name == "sgd") return std::make_unique<lab::Sgd>();
  // A large epsilon: with a small one a gradient near zero, which is all rounding, would decide
  // about the whole length of a weight's step.
  const lab::AdamConfig config{.epsilon = 1e-3F};
  return std::make_unique<lab::Adam>(size, config, plain_adam);
}

/// Task 3: `steps` training steps, with a correct loss, and an optimizer that keeps a record.
Parcel run_train_step(const Parcel& input) {
  lab::LlamaStage model = tiny_model();
  model.gradients().fill(static_cast<float>(input.number("leftover")));
  const std::vector<TokenBatch> batches = microbatches(input);
  RecordingOptimizer optimizer(make_optimizer(input.text("optimizer"), model.parameters().numel()));
  Parcel result;
  for (int step = 0; step < static_cast<int>(input.number("steps")); ++step) {
    const std::string suffix = std::to_string(step);
    optimizer.clear();
    loss_totals().clear();
    result.set("loss" + suffix, train_step(model, optimizer, batches, recording_loss,
                                           static_cast<float>(input.number("learning_rate")),
                                           input.number("max_norm")));
    result.set("totals" + suffix, loss_totals());
    result.set("updates" + suffix, static_cast<double>(optimizer.updates().size()));
    if (!optimizer.updates().empty()) {
      result.set("gradients" + suffix, optimizer.updates()[0].gradients);
      result.set("rate" + suffix, optimizer.updates()[0].learning_rate);
    }
    result.set("weights" + suffix, model.parameters().clone());
  }
  return result;
}

/// The oracle of task 3, without any of the lab's functions: loss and gradients of each microbatch,
/// summed over its targets, and the initial weights.
Parcel run_microbatch_gradients(const Parcel& input) {
  lab::LlamaStage model = tiny_model();
  Parcel result;
  result.set("weights", model.parameters().clone());
  std::vector<double> losses;
  for (const TokenBatch& batch : microbatches(input)) {
    model.zero_gradients();
    const Tensor logits = model.forward(batch);
    const double loss = reference::causal_lm_loss(logits, batch, 1);
    model.backward(logits);
    result.set("gradients" + std::to_string(losses.size()), model.gradients().clone());
    losses.push_back(loss);
  }
  result.set("losses", losses);
  std::string names;
  std::vector<double> begins;
  for (const lab::Parameter& parameter : model.named_parameters()) {
    names += parameter.name + "\n";
    begins.push_back(static_cast<double>(parameter.value.data() - model.parameters().data()));
  }
  result.set_text("names", names);
  result.set("begins", begins);
  return result;
}

}  // namespace
}  // namespace lab01

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"cross_entropy", lab01::run_cross_entropy},
                 {"cross_entropy_by_threads", lab01::run_cross_entropy_by_threads},
                 {"causal_lm_loss", lab01::run_causal_lm_loss},
                 {"causal_lm_loss_by_threads", lab01::run_causal_lm_loss_by_threads},
                 {"adam_update", lab01::run_adam_update},
                 {"train_step", lab01::run_train_step},
                 {"microbatch_gradients", lab01::run_microbatch_gradients}}});
}
