#include "tests/labs/10_tensor_parallel/rank_scenarios.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/optimizer.h"
#include "common/tensor/memory_account.h"
#include "labs/10_tensor_parallel/passes.h"
#include "tests/grading/short_turns.h"
#include "tests/grading/training_rank.h"

namespace lab10 {

using lab::ProcessGroup;
using lab::Tensor;
using lab::grading::Parcel;

namespace {

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

/// In the tensors that attention has filled when the MLP begins.
constexpr float kOfAttention = 55.0F;

std::map<std::string, Tensor> by_name(const lab::LayerActivations& kept) {
  return {{"attention_inverse_rms", kept.attention_inverse_rms},
          {"qkv", kept.qkv},
          {"attention", kept.attention},
          {"logsumexp", kept.logsumexp},
          {"middle", kept.middle},
          {"mlp_inverse_rms", kept.mlp_inverse_rms},
          {"gate_up", kept.gate_up}};
}

bool is_of_attention(const std::string& name) {
  return name == "attention_inverse_rms" || name == "qkv" || name == "attention" ||
         name == "logsumexp";
}

/// What a forward pass finds: nothing that it could use.
lab::LayerActivations empty_activations(const lab::LlamaConfig& config, int64_t batch,
                                        int64_t length, bool mlp) {
  lab::LayerActivations kept(config, batch, length, {});
  for (const auto& [name, tensor] : by_name(kept))
    tensor.fill(mlp && is_of_attention(name) ? kOfAttention : kNothing);
  return kept;
}

/// The names of those tensors that the MLP has changed, though attention has filled them, `middle`
/// with `x`.
std::string changed_by_mlp(const lab::LayerActivations& kept, const Tensor& x) {
  const auto is_changed = [&](const std::string& name, const Tensor& tensor) {
    if (name == "middle") return !std::ranges::equal(tensor.values(), x.values());
    const auto is_other = [](float value) { return value != kOfAttention; };
    return is_of_attention(name) && std::ranges::any_of(tensor.values(), is_other);
  };
  std::string names;
  for (const auto& [name, tensor] : by_name(kept))
    if (is_changed(name, tensor)) names += (names.empty() ? "kept." : ", kept.") + name;
  return names;
}

/// The same numbers in other memory. The old memory then holds nothing.
lab::LayerActivations moved(const lab::LayerActivations& kept, const lab::LlamaConfig& config,
                            int64_t batch, int64_t length) {
  lab::LayerActivations to(config, batch, length, {});
  const auto from = by_name(kept);
  for (const auto& [name, tensor] : by_name(to)) {
    tensor.copy_from(from.at(name));
    from.at(name).fill(kNothing);
  }
  return to;
}

/// The same activations serve one microbatch after the other. `pass`: "forward".
void require_all(const char* pass, const lab::LayerActivations& kept,
                 const std::map<std::string, Tensor>& before) {
  for (const auto& [name, tensor] : by_name(kept))
    lab::require(tensor.defined() && tensor.shape() == before.at(name).shape() &&
                     tensor.data() == before.at(name).data(),
                 "a {} pass has dropped or replaced kept.{}: it may write into the tensors of "
                 "`kept`, but they serve the next microbatch as well",
                 pass, name);
}

lab::TensorSlice slice_of_rank(const ProcessGroup& world) {
  return {.rank = world.rank(), .ranks = world.size()};
}

}  // namespace

lab::LlamaConfig config_of(const Parcel& input) { return lab::grading::model_of(input); }

Parcel run_block(const Parcel& input, ProcessGroup& world) {
  lab::LlamaConfig whole = config_of(input);
  whole.norm_eps = static_cast<float>(input.number("norm_eps"));
  whole.rope_theta = static_cast<float>(input.number("rope_theta"));
  const lab::LlamaConfig config = lab::slice_config(whole, slice_of_rank(world));
  const bool mlp = input.number("mlp") != 0;
  const auto batch = static_cast<int64_t>(input.number("batch"));
  const auto length = static_cast<int64_t>(input.number("length"));
  // The layer's weights are those that the verdict has drawn, and gradients hold leftovers.
  lab::Weights weights(whole, {.first_layer = 0, .last_layer = 1}, lab::Device::kCpu, 1,
                       slice_of_rank(world));
  const Tensor angles = lab::rope_table(whole.context, whole.head_dim(), whole.rope_theta);
  const lab::LayerShape shape{config, batch, length};
  const auto memory = std::make_shared<lab::MemoryAccount>();  // of forward passes
  const auto elsewhere = [&] {
    return memory->bytes() - memory->bytes(lab::MemoryKind::kCommunication);
  };
  const auto forward = [&](const Tensor& x, lab::LayerActivations& kept, const Tensor& output) {
    const lab::CountMemory counting(memory);
    if (mlp)
      mlp_forward(shape, weights.layers[0], kept, output, world);
    else
      attention_forward(shape, weights.layers[0], angles, x, kept, world);
  };
  const auto backward = [&](const Tensor& x, lab::LayerActivations& kept, const Tensor& gradient) {
    if (mlp)
      mlp_backward(shape, weights.layers[0], kept, gradient, world);
    else
      attention_backward(shape, weights.layers[0], angles, x, kept, gradient, world);
  };
  // A step with the initial weights, which an optimizer then changes in their place.
  {
    const Tensor x = input.tensor("input.0").clone();
    lab::LayerActivations kept = empty_activations(config, batch, length, mlp);
    if (mlp) kept.middle.copy_from(x);
    forward(x, kept, mlp ? Tensor::empty(x.shape()) : kept.middle);
    backward(x, kept, input.tensor("gradient.0").clone());
  }
  const int64_t scratch = elsewhere();  // may be used again and again
  for (const lab::Parameter& parameter : weights.named) {
    parameter.value.copy_from(
        lab::slice_of(parameter.name, input.tensor(parameter.name), slice_of_rank(world)));
    parameter.gradient.fill(static_cast<float>(input.number("leftover")));
  }

  const int microbatches = int_of(input, "microbatches");
  const auto entry = [](const char* name, int microbatch) {
    return fmt::format("{}.{}", name, microbatch);
  };
  Parcel result;
  std::vector<Tensor> inputs;
  std::vector<lab::LayerActivations> kept;
  for (int m = 0; m < microbatches; ++m) {
    const Tensor x = inputs.emplace_back(input.tensor(entry("input", m)).clone());
    kept.push_back(empty_activations(config, batch, length, mlp));
    const Tensor output = mlp ? Tensor::empty(x.shape()) : kept.back().middle;
    output.fill(kNothing);
    if (mlp) kept.back().middle.copy_from(x);
    const auto before = by_name(kept.back());
    note_messages(world, result, entry("forward.sent", m),
                  [&] { forward(x, kept.back(), output); });
    require_all("forward", kept.back(), before);
    lab::require(elsewhere() <= scratch,
                 "a forward pass leaves tensors of {} bytes beside `kept`: what the backward "
                 "pass needs belongs in the tensors of `kept`, which count as activations",
                 elsewhere() - scratch);
    result.set(entry("output", m), output.clone());
    result.set(entry("input", m), x.clone());
    for (const auto& [name, tensor] : by_name(kept.back()))
      result.set(entry(("kept." + name).c_str(), m), tensor.clone());
    result.set_text(entry("forward.changes", m), mlp ? changed_by_mlp(kept.back(), x) : "");
  }
  for (int m = microbatches; m-- > 0;) {  // not in the order of the forward passes
    const Tensor x = inputs[static_cast<size_t>(m)];
    const Tensor gradient = input.tensor(entry("gradient", m)).clone();
    lab::LayerActivations own = moved(kept[static_cast<size_t>(m)], config, batch, length);
    const auto before = by_name(own);
    note_messages(world, result, entry("backward.sent", m), [&] { backward(x, own, gradient); });
    result.set(entry("gradient", m), gradient);
    require_all("backward", own, before);
    lab::require(std::ranges::equal(x.values(), input.tensor(entry("input", m)).values()),
                 "a backward pass changes `input`: it must only read it");
    result.set_text(entry("backward.changes", m), mlp ? changed_by_mlp(own, x) : "");
  }
  for (const lab::Parameter& parameter : weights.named) {
    result.set(parameter.name, parameter.gradient.clone());
    result.set("value." + parameter.name, parameter.value.clone());
  }
  return result;
}

namespace {

/// The same gradient again and again, by threads that interrupt each other, until it differs from
/// that before.
void add_until_it_differs(const std::vector<int32_t>& tokens, const Tensor& dy,
                          const lab::Weight& table, const lab::Range& vocabulary) {
  constexpr int kMostRounds = 100;
  const Tensor first = table.gradient.clone();
  const lab::grading::ShortTurns turns;
  for (int round = 0; round < kMostRounds && !lab::grading::ShortTurns::over(); ++round) {
    table.gradient.fill(0.0F);
    embed_backward(tokens, dy, table, vocabulary);
    if (!std::ranges::equal(table.gradient.values(), first.values())) return;
  }
}

}  // namespace

Parcel run_embed(const Parcel& input, ProcessGroup& world) {
  const Tensor table = input.tensor("table");
  const lab::Range vocabulary = lab::range_of(table.size(0), slice_of_rank(world));
  const Tensor leftover = input.tensor("leftover");
  const lab::Weight weight{.value = table.rows(vocabulary.first, vocabulary.last).clone(),
                           .gradient = leftover.rows(vocabulary.first, vocabulary.last).clone(),
                           .rounded = {}};
  std::vector<int32_t> tokens = input.batch("tokens").tokens;
  const Tensor y = Tensor::empty({static_cast<int64_t>(tokens.size()), table.size(1)});
  const Tensor dy = input.tensor("dy").clone();
  // A step with the tokens in the opposite order, in the same memory.
  std::ranges::reverse(tokens);
  embed_forward(tokens, weight, vocabulary, y, world);
  embed_backward(tokens, dy, weight, vocabulary);
  std::ranges::reverse(tokens);
  weight.gradient.copy_from(leftover.rows(vocabulary.first, vocabulary.last));
  dy.copy_from(input.tensor("dy"));
  y.fill(kNothing);
  Parcel result;
  note_messages(world, result, "forward.sent",
                [&] { embed_forward(tokens, weight, vocabulary, y, world); });
  const std::vector<int32_t> others = input.batch("others").tokens;
  if (!others.empty())  // another microbatch in flight
    embed_forward(others, weight, vocabulary,
                  Tensor::empty({static_cast<int64_t>(others.size()), table.size(1)}), world);
  note_messages(world, result, "backward.sent",
                [&] { embed_backward(tokens, dy, weight, vocabulary); });
  if (input.number("by_threads") != 0) add_until_it_differs(tokens, dy, weight, vocabulary);
  result.set("y", y);
  result.set("gradient", weight.gradient);
  result.set("dy", dy);
  return result;
}

Parcel run_loss(const Parcel& input, ProcessGroup& world) {
  const lab::TokenBatch batch = input.batch("tokens");
  const Tensor whole = input.tensor("logits");  // [N, V]
  const lab::Range vocabulary = lab::range_of(whole.size(-1), slice_of_rank(world));
  const Tensor logits = whole.columns(vocabulary.first, vocabulary.last)
                            .clone()
                            .view({batch.batch, batch.length, vocabulary.size()});
  Parcel result;
  note_messages(world, result, "sent", [&] {
    result.set("loss", causal_lm_loss(logits, batch, static_cast<int64_t>(input.number("targets")),
                                      vocabulary, world));
  });
  result.set("gradient", logits);
  return result;
}

Parcel run_steps(const Parcel& input, ProcessGroup& world) {
  const lab::LlamaConfig config = config_of(input);
  lab::LlamaStage stage = make_stage(config, lab::StageSpan::whole(config), world, 7);
  const lab::Range vocabulary = vocabulary_of(config, world);
  lab::Sgd optimizer;
  Parcel result;
  const double max_norm = input.number("max_norm");
  for (int s = 0; s < int_of(input, "steps"); ++s) {
    std::vector<lab::TokenBatch> microbatches;
    int64_t targets = 0;
    for (int m = 0; m < int_of(input, "microbatches"); ++m) {
      microbatches.push_back(input.batch(fmt::format("tokens.{}.{}", s, m)));
      targets += microbatches.back().target_count();
    }
    stage.zero_gradients();
    double loss = 0;
    note_messages(world, result, fmt::format("sent.{}", s), [&] {
      std::vector<Tensor> logits;  // all microbatches in flight
      for (size_t m = 0; m < microbatches.size(); ++m)
        logits.push_back(stage.forward(microbatches[m], static_cast<int>(m)));
      if (s == 0) result.set("logits", logits[0].clone());
      for (size_t m = 0; m < microbatches.size(); ++m) {
        loss += causal_lm_loss(logits[m], microbatches[m], targets, vocabulary, world);
        stage.backward(logits[m], static_cast<int>(m));
      }
      if (max_norm > 0)
        result.set(fmt::format("norm.{}", s), clip_gradients(stage, max_norm, world));
    });
    if (s == 0)
      for (const lab::Parameter& parameter : stage.named_parameters())
        result.set("gradient." + parameter.name, parameter.gradient.clone());
    optimizer.step(stage.parameters(), stage.gradients(), 0.1F);
    result.set(fmt::format("loss.{}", s), loss);
  }
  for (const lab::Parameter& parameter : stage.named_parameters())
    result.set("weight." + parameter.name, parameter.value.clone());
  return result;
}

}  // namespace lab10
