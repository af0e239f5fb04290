#include "common/model/llama_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "common/error.h"
#include "common/model/llama_stage_impl.h"
#include "common/model/slice.h"
#include "common/model/stage_passes.h"
#include "common/ops/ops.h"
#include "common/ops/precision.h"
#include "common/tensor/memory_account.h"

namespace lab {
namespace {

/// Checked before any memory is allocated.
const LlamaConfig& checked(const LlamaConfig& config, const StageSpan& span) {
  config.validate();
  require(0 <= span.first_layer && span.first_layer <= span.last_layer &&
              span.last_layer <= config.layers,
          "stage: layers [{}, {}) of a model of {} layers", span.first_layer, span.last_layer,
          config.layers);
  return config;
}

/// Tells an observer when a pass begins and ends.
class ObservedPass {
 public:
  ObservedPass(const LlamaStage::PassObserver& observer, LlamaStage::Pass pass, int microbatch)
      : observer_(observer), pass_(pass), microbatch_(microbatch) {
    if (observer_) observer_(pass_, microbatch_, /*begins=*/true);
  }
  ~ObservedPass() {
    if (observer_) observer_(pass_, microbatch_, /*begins=*/false);
  }
  ObservedPass(const ObservedPass&) = delete;
  ObservedPass& operator=(const ObservedPass&) = delete;

 private:
  const LlamaStage::PassObserver& observer_;
  LlamaStage::Pass pass_;
  int microbatch_;
};

}  // namespace

void check_tokens(std::span<const int32_t> tokens, const LlamaConfig& config) {
  for (int32_t token : tokens)
    require(token >= kPadding && token < config.vocab_size,
            "token {} is not in the model's vocabulary of {}: does the tokenizer belong to it?",
            token, config.vocab_size);
}

InFlight::InFlight(const LlamaConfig& config, const StageSpan& span, int64_t batch_size,
                   int64_t sequence, LayerMemory memory_of_layers)
    : batch(batch_size), length(sequence), memory(memory_of_layers), tokens(memory.device) {
  const Device device = memory.device;
  const int64_t rows = batch * length;
  for (int64_t l = 0; l < span.layers(); ++l) layers.emplace_back(config, batch, length, memory);
  for (int64_t l = 0; l <= span.layers(); ++l)
    hidden.push_back(Tensor::empty({rows, config.dim}, device));
  if (span.has_head) {
    inverse_rms = Tensor::empty({rows}, device);
    logits = Tensor::empty({batch, length, config.vocab_size}, device);
  }
  if (device == Device::kCuda) gradient = Tensor::empty({rows, config.dim}, device);
  bytes = inverse_rms.bytes() + logits.bytes() + gradient.bytes();
  for (const Tensor& h : hidden) bytes += h.bytes();
  for (const LayerActivations& layer : layers) bytes += layer.bytes();
}

bool InFlight::fits(int64_t batch_size, int64_t sequence, const LayerMemory& other) const {
  return batch == batch_size && length == sequence && memory == other;
}

LlamaStage::Impl::Impl(const LlamaConfig& model, const StageSpan& layers, Device where,
                       uint64_t initial, WeightMemory whose, const TensorSlice& slice,
                       std::shared_ptr<StagePasses> stage_passes)
    : whole(checked(model, layers)),
      config(slice_config(model, slice)),
      span(layers),
      tensor_slice(slice),
      has_whole_layers(stage_passes == nullptr),
      passes(has_whole_layers ? whole_passes(scratch) : std::move(stage_passes)),
      device(where),
      seed(initial),
      weights(model, layers, where, initial, slice, whose) {
  const MemoryOf kind(MemoryKind::kActivations);
  rope_angles = rope_table(model.context, model.head_dim(), model.rope_theta).to(where);
  for (size_t p = 0; p < weights.part_count(); ++p) part_order.push_back(p);
  if (weights.tied_here) part_order.push_back(0);
}

InFlight& LlamaStage::Impl::begin(int microbatch, int64_t batch, int64_t length) {
  require(batch >= 0 && length >= 1 && length <= config.context,
          "microbatch {}: {} sequences of {} tokens; the model's context is {}", microbatch, batch,
          length, config.context);
  require(!in_flight.contains(microbatch),
          "forward of microbatch {}, which is in flight: its backward has not been called",
          microbatch);
  require((weights.memory == WeightMemory::kOwn && has_whole_layers) || !memory().rounds(),
          "layers in shards or divided among ranks are not computed in bfloat16: use --precision "
          "float32");
  if (!idle.empty() && !idle.back()->fits(batch, length, memory())) idle.clear();
  std::unique_ptr<InFlight> state;
  if (idle.empty()) {
    const MemoryOf kind(MemoryKind::kActivations);
    state = std::make_unique<InFlight>(config, span, batch, length, memory());
  } else {
    state = std::move(idle.back());
    idle.pop_back();
  }
  // While a microbatch is in flight, the weights do not change. When gradients are zeroed, a step
  // is over, even if the caller has forgotten a microbatch.
  const auto rounds = [](const auto& entry) { return entry.second->memory.rounds(); };
  if (state->memory.rounds() && (rounded_is_old || std::ranges::none_of(in_flight, rounds))) {
    weights.round();
    rounded_is_old = false;
  }
  active_bytes += state->bytes;
  peak_bytes = std::max(peak_bytes, active_bytes);
  return *(in_flight[microbatch] = std::move(state));
}

std::unique_ptr<InFlight> LlamaStage::Impl::end(int microbatch, const char* what) {
  const auto entry = in_flight.find(microbatch);
  require(entry != in_flight.end(),
          "{} of microbatch {}, which is not in flight: each needs its own forward first", what,
          microbatch);
  std::unique_ptr<InFlight> state = std::move(entry->second);
  in_flight.erase(entry);
  active_bytes -= state->bytes;
  return state;
}

void LlamaStage::Impl::recycle(std::unique_ptr<InFlight> state) {
  if (!idle.empty() && !idle.back()->fits(state->batch, state->length, state->memory)) idle.clear();
  idle.push_back(std::move(state));
}

LayerMemory LlamaStage::Impl::memory() const {
  return {.device = device, .precision = precision(device)};
}

void LlamaStage::Impl::fit_scratch(InFlight& state) {
  const int64_t rows = state.batch * state.length;
  if (!scratch || scratch_rows != rows || scratch->memory != state.memory) {
    const MemoryOf kind(MemoryKind::kActivations);
    scratch = std::make_shared<LayerScratch>(config, state.batch, state.length, state.memory);
    scratch_rows = rows;
  }
  if (state.scratch == scratch) return;
  state.scratch = scratch;
  state.forward = {};
  state.backward = {};
}

bool LlamaStage::Impl::record(RecordedPass& pass, const std::function<void()>& work) {
  if (pass.work != nullptr || !records) return pass.work != nullptr;
  try {
    pass.work = accelerator().record(work);
  } catch (const Error& error) {
    records = false;
    fmt::print(stderr, "note: this stage's passes are not recorded as CUDA graphs: {}\n",
               error.what());
  }
  return records;
}

void LlamaStage::Impl::run(const InFlight& state, RecordedPass& pass,
                           const std::function<void()>& work) {
  // The first time, libraries load their kernels, which cannot be recorded. A pass in a different
  // precision than the microbatch began with is not recorded either: it would be repeated for other
  // microbatches. Nor is a pass that calls observers in between, or whose weights may be elsewhere
  // the next time.
  const bool calls = before_part || after_part || weights.memory == WeightMemory::kBound ||
                     (gradient_ready && &pass == &state.backward);
  const bool repeatable =
      device == Device::kCuda && state.memory == memory() && !calls && pass.uses++ > 0;
  if (repeatable && record(pass, work))
    pass.work->repeat();
  else
    work();
  // An observer wants the time of the pass, not the time it takes to launch it.
  if (observer && device == Device::kCuda) accelerator().synchronize();
}

Tensor LlamaStage::Impl::forward(InFlight& state) {
  fit_scratch(state);
  run(state, state.forward, [&] {
    if (span.embeds)
      with_parts(Pass::kForward, 0, 1, [&] {
        passes->embedding_forward(state.tokens.tokens(), weights.embedding, state.hidden[0]);
      });
    const LayerShape shape{config, state.batch, state.length};
    for (size_t l = 0; l < weights.layers.size(); ++l)
      with_parts(Pass::kForward, weights.part_of(l), 1, [&] {
        passes->layer_forward(shape, weights.layers[l], rope_angles, state.hidden[l],
                              state.layers[l], state.hidden[l + 1]);
      });
    if (!span.has_head) return;
    with_parts(Pass::kForward, weights.part_of(weights.layers.size()), head_parts(), [&] {
      rmsnorm_forward(state.hidden.back(), weights.norm.value, config.norm_eps, scratch->normed,
                      state.inverse_rms);
      passes->head_forward(scratch->normed, weights.head, state.logits);
    });
  });
  if (span.has_head) return state.logits;
  return state.hidden.back().view({state.batch, state.length, config.dim});
}

void LlamaStage::Impl::head_backward(const InFlight& state, const Tensor& logits_gradient,
                                     const Tensor& gradient) {
  const Tensor rounded = between_operations(logits_gradient, state.memory, scratch->rounded_logits);
  rmsnorm_apply(state.hidden.back(), weights.norm.value, state.inverse_rms, scratch->normed);
  passes->head_backward(rounded, scratch->normed, weights.head, scratch->normed_gradient);
  gradient.fill(0.0F);
  rmsnorm_backward(scratch->normed_gradient, state.hidden.back(), weights.norm.value,
                   state.inverse_rms, gradient, weights.norm.gradient);
}

void LlamaStage::Impl::layers_backward(InFlight& state, const Tensor& gradient) {
  const LayerShape shape{config, state.batch, state.length};
  size_t use = span.has_head ? head_parts() : 0;
  for (size_t l = weights.layers.size(); l-- > 0;) {
    with_parts(Pass::kBackward, use++, 1, [&] {
      passes->layer_backward(shape, weights.layers[l], rope_angles, state.hidden[l],
                             state.layers[l], gradient);
    });
    announce(weights.part_of(l));
  }
}

void LlamaStage::Impl::announce(size_t part) const {
  if (!gradient_ready) return;
  const size_t first = weights.first_of_part(part);
  for (size_t parameter = weights.first_of_part(part + 1); parameter-- > first;)
    gradient_ready(parameter);
}

Tensor LlamaStage::Impl::backward(InFlight& state, const Tensor& output_gradient) {
  fit_scratch(state);
  const int64_t rows = state.batch * state.length;
  // The returned tensor does not belong to the microbatch: it may still be on its way to another
  // rank when the next one starts.
  const bool recorded = device == Device::kCuda;
  const auto own_gradient = [&] {
    const MemoryOf kind(MemoryKind::kActivations);
    return Tensor::empty({rows, config.dim}, device);
  };
  const Tensor gradient = recorded ? state.gradient : own_gradient();
  Tensor logits_gradient = output_gradient;
  if (!span.has_head) {
    gradient.copy_from(output_gradient.view({rows, config.dim}));
  } else if (recorded && output_gradient.data() != state.logits.data()) {
    state.logits.copy_from(output_gradient);  // usually a no-op: the loss wrote it there
    logits_gradient = state.logits;
  }

  run(state, state.backward, [&] {
    if (span.has_head) {
      with_parts(Pass::kBackward, 0, head_parts(),
                 [&] { head_backward(state, logits_gradient, gradient); });
      announce(weights.part_of(weights.layers.size()));
    }
    layers_backward(state, gradient);
    if (!span.embeds) return;
    with_parts(Pass::kBackward, part_order.size() - 1, 1, [&] {
      passes->embedding_backward(state.tokens.tokens(), gradient, weights.embedding);
    });
    if (!gradient_ready) return;
    weights.fold_tied_gradient();
    announce(0);
  });
  if (span.embeds) return {};
  return (recorded ? gradient.clone() : gradient).view({state.batch, state.length, config.dim});
}

// --- The interface

LlamaStage::LlamaStage(const LlamaConfig& config, const StageSpan& span, Device device,
                       uint64_t seed, WeightMemory memory)
    : impl_(std::make_unique<Impl>(config, span, device, seed, memory)) {}
LlamaStage::LlamaStage(const LlamaConfig& config, const StageSpan& span, const TensorSlice& slice,
                       std::shared_ptr<StagePasses> passes, uint64_t seed)
    : impl_(std::make_unique<Impl>(config, span, Device::kCpu, seed, WeightMemory::kOwn, slice,
                                   std::move(passes))) {
  require(!impl_->has_whole_layers, "stage: slice {} of {}, but no passes for slices", slice.rank,
          slice.ranks);
}
LlamaStage::~LlamaStage() = default;
LlamaStage::LlamaStage(LlamaStage&&) noexcept = default;
LlamaStage& LlamaStage::operator=(LlamaStage&&) noexcept = default;

const LlamaConfig& LlamaStage::config() const { return impl_->whole; }
const StageSpan& LlamaStage::span() const { return impl_->span; }
const TensorSlice& LlamaStage::slice() const { return impl_->tensor_slice; }
Device LlamaStage::device() const { return impl_->device; }

Tensor LlamaStage::forward(const TokenBatch& tokens, int microbatch) {
  const ObservedPass observed(impl_->observer, Pass::kForward, microbatch);
  require(impl_->span.embeds, "forward of tokens on a stage that does not embed");
  require(static_cast<int64_t>(tokens.tokens.size()) == tokens.batch * tokens.length,
          "a batch of {} sequences of {} tokens holds {} tokens", tokens.batch, tokens.length,
          tokens.tokens.size());
  check_tokens(tokens.tokens, impl_->whole);
  InFlight& state = impl_->begin(microbatch, tokens.batch, tokens.length);
  state.tokens.assign(tokens.tokens);
  return impl_->forward(state);
}

Tensor LlamaStage::forward(const Tensor& hidden, int microbatch) {
  const ObservedPass observed(impl_->observer, Pass::kForward, microbatch);
  require(!impl_->span.embeds, "forward of hidden states on a stage that embeds tokens");
  require(hidden.dims() == 3 && hidden.size(-1) == impl_->config.dim,
          "forward: hidden states of shape {}, expected [B, T, {}]", to_string(hidden.shape()),
          impl_->config.dim);
  InFlight& state = impl_->begin(microbatch, hidden.size(0), hidden.size(1));
  state.hidden[0].copy_from(hidden.view(state.hidden[0].shape()));
  return impl_->forward(state);
}

Tensor LlamaStage::backward(const Tensor& output_gradient, int microbatch) {
  const ObservedPass observed(impl_->observer, Pass::kBackward, microbatch);
  std::unique_ptr<InFlight> state = impl_->end(microbatch, "backward");
  const Shape expected = {state->batch, state->length,
                          span().has_head ? impl_->config.vocab_size : impl_->config.dim};
  require(
      output_gradient.defined(),
      "backward of microbatch {}: an undefined tensor, not the gradient of its output of shape {}",
      microbatch, to_string(expected));
  require(output_gradient.shape() == expected,
          "backward: a gradient of shape {} for an output of shape {}",
          to_string(output_gradient.shape()), to_string(expected));
  Tensor gradient = impl_->backward(*state, output_gradient);
  impl_->recycle(std::move(state));
  return gradient;
}

void LlamaStage::discard(int microbatch) { impl_->recycle(impl_->end(microbatch, "discard")); }

Tensor LlamaStage::parameters() const {
  require(impl_->weights.memory == WeightMemory::kOwn,
          "parameters() of a stage whose weights are bound part by part: it has no flat buffer");
  return impl_->weights.values;
}

Tensor LlamaStage::gradients() const {
  require(impl_->weights.memory == WeightMemory::kOwn,
          "gradients() of a stage whose weights are bound part by part: it has no flat buffer");
  impl_->weights.fold_tied_gradient();
  return impl_->weights.gradients;
}

void LlamaStage::zero_gradients() {
  impl_->rounded_is_old = true;
  if (impl_->weights.memory == WeightMemory::kBound) {
    for (const Parameter& parameter : impl_->weights.named)
      if (parameter.gradient.defined()) parameter.gradient.fill(0.0F);
    return;
  }
  impl_->weights.gradients.fill(0.0F);
  if (impl_->weights.tied_here) impl_->weights.head.gradient.fill(0.0F);
}

const std::vector<Parameter>& LlamaStage::named_parameters() const {
  impl_->weights.fold_tied_gradient();
  return impl_->weights.named;
}

int64_t LlamaStage::parameter_count() const { return impl_->weights.weight_count; }

void LlamaStage::observe_passes(PassObserver observer) { impl_->observer = std::move(observer); }

void LlamaStage::when_gradient_ready(GradientReady ready) {
  impl_->gradient_ready = std::move(ready);
}

size_t LlamaStage::activation_bytes() const { return impl_->active_bytes; }
size_t LlamaStage::peak_activation_bytes() const { return impl_->peak_bytes; }

}  // namespace lab
