// All replicas of local SGD in one process.
#include "tests/labs/03_weight_aggregation/rank_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/optim/clip.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace lab03 {
namespace {

using lab::Tensor;
using lab::grading::Parcel;

/// The Adam update as the paper writes it.
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

struct Replica {
  lab::LlamaStage model = tiny_model();
  std::unique_ptr<lab::Optimizer> optimizer;
};

/// Sets the tensors of all replicas to their weighted sum.
void average(const std::vector<Tensor>& tensors, const std::vector<double>& shares) {
  for (int64_t i = 0; i < tensors[0].numel(); ++i) {
    double sum = 0;
    for (size_t r = 0; r < tensors.size(); ++r) sum += shares[r] * tensors[r].data()[i];
    for (const Tensor& tensor : tensors) tensor.data()[i] = static_cast<float>(sum);
  }
}

/// Loss and gradients of a rank's microbatches, before any update. `own_means`: every microbatch
/// counts the same, by mistake.
double compute_gradients(lab::LlamaStage& model, const std::vector<lab::TokenBatch>& batches,
                         bool own_means) {
  int64_t targets = 0;
  for (const lab::TokenBatch& batch : batches) targets += batch.target_count();
  const auto count = static_cast<int64_t>(batches.size());
  model.zero_gradients();
  double loss = 0;
  for (const lab::TokenBatch& batch : batches) {
    const Tensor logits = model.forward(batch);
    loss +=
        lab01::causal_lm_loss(logits, batch, own_means ? count * batch.target_count() : targets);
    model.backward(logits);
  }
  return loss;
}

}  // namespace

lab::LlamaStage tiny_model() {
  const lab::LlamaConfig config{.vocab_size = 24,
                                .dim = 16,
                                .heads = 2,
                                .kv_heads = 1,
                                .layers = 2,
                                .hidden_dim = 24,
                                .context = 8,
                                .init_std = 0.3F};
  return {config, lab::StageSpan::whole(config), lab::Device::kCpu, 11};
}

std::unique_ptr<lab::Optimizer> make_optimizer(const std::string& name, int64_t size) {
  if (name == "sgd") return std::make_unique<lab::Sgd>();
  // A large epsilon: with a small one a gradient near zero, which is all rounding, would decide
  // about the whole length of a weight's step.
  const lab::AdamConfig config{.epsilon = 1e-3F};
  return std::make_unique<lab::Adam>(size, config, plain_adam);
}

std::vector<lab::TokenBatch> microbatches(const Parcel& input, int rank, int step) {
  std::vector<lab::TokenBatch> batches;
  for (int m = 0; m < static_cast<int>(input.number("microbatches")); ++m)
    batches.push_back(input.batch(fmt::format("tokens.{}.{}.{}", step, rank, m)));
  return batches;
}

void describe_parameters(const lab::LlamaStage& model, Parcel& result) {
  std::string names;
  std::vector<double> begins;
  for (const lab::Parameter& parameter : model.named_parameters()) {
    names += parameter.name + "\n";
    begins.push_back(static_cast<double>(parameter.value.data() - model.parameters().data()));
  }
  result.set_text("names", names);
  result.set("begins", begins);
}

Parcel run_replicas(const Parcel& input) {
  const std::vector<double> shares = input.numbers("shares");
  const std::vector<double> averages = input.numbers("averages");
  const bool average_first = input.number("average_first") != 0;
  const bool average_gradients = input.number("gradients") != 0;
  const bool own_means = input.number("own_means") != 0;
  const auto rate = static_cast<float>(input.number("learning_rate"));
  const double max_norm = input.number("max_norm");

  std::vector<Replica> replicas(shares.size());
  std::vector<Tensor> weights;
  std::vector<Tensor> gradients;
  for (Replica& replica : replicas) {
    weights.push_back(replica.model.parameters());
    gradients.push_back(replica.model.gradients());
    replica.optimizer = make_optimizer(input.text("optimizer"), weights.back().numel());
  }
  Parcel result;
  result.set("start", weights[0].clone());
  describe_parameters(replicas[0].model, result);

  for (int step = 1; step <= static_cast<int>(input.number("steps")); ++step) {
    const bool due = std::ranges::count(averages, step) > 0;
    if (due && average_first) average(weights, shares);
    for (size_t r = 0; r < replicas.size(); ++r) {
      const double loss = compute_gradients(
          replicas[r].model, microbatches(input, static_cast<int>(r), step), own_means);
      result.set(fmt::format("loss.{}.{}", step, r), loss);
      if (max_norm > 0) lab::clip_gradients(replicas[r].model, max_norm);
      for (float& g : gradients[r].values())
        g *= static_cast<float>(input.number("gradient_scale"));
    }
    if (average_gradients) average(gradients, shares);
    for (size_t r = 0; r < replicas.size(); ++r)
      replicas[r].optimizer->step(weights[r], gradients[r], rate);
    if (due && !average_first) average(weights, shares);
    for (size_t r = 0; r < replicas.size(); ++r)
      result.set(fmt::format("weights.{}.{}", step, r), weights[r].clone());
  }
  return result;
}

}  // namespace lab03
