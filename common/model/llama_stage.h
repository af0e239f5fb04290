// LlamaStage: a contiguous part of a LLaMA, with hand-written forward and backward passes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/data/batch.h"
#include "common/model/config.h"
#include "common/tensor/tensor.h"

namespace lab {

class StagePasses;

/// One weight of the model. `value` and `gradient` are views of the stage's flat buffers.
struct Parameter {
  std::string name;  // as in Hugging Face: "model.layers.0.self_attn.q_proj.weight"
  Tensor value;      // matrices are [out, in]
  Tensor gradient;
};

/// Who owns the memory of a stage's weights and their gradients.
enum class WeightMemory {
  kOwn,    // the stage's: two flat buffers
  kBound,  // somebody else's: bound part by part, and released again
};

/// The layers of a `StageSpan`. A stage that spans everything is the whole model: tokens in, logits
/// out. Otherwise hidden states [B, T, C] come in or go out.
///
/// Several microbatches may be in flight: `forward` keeps what `backward` of the same microbatch
/// number will need, in whatever order the backward passes come. Weights must not change until none
/// is in flight. Gradients add up over backward passes until `zero_gradients`.
///
/// Initial values depend only on the seed and on each parameter's global name, so the stages of a
/// split model hold exactly the weights of the whole one.
///
/// Architecture: Touvron et al., "LLaMA" (2023), section 2.2; as Hugging Face's LlamaForCausalLM.
class LlamaStage {
 public:
  LlamaStage(const LlamaConfig& config, const StageSpan& span, Device device, uint64_t seed,
             WeightMemory memory = WeightMemory::kOwn);
  /// Only a slice of each of these layers, which `passes` computes together with the ranks that
  /// hold the others; `config` is that of the whole model. The weights are slices of the whole
  /// model's (common/model/slice.h). `forward` returns this slice's logits, [B, T, V of the slice],
  /// and `backward` takes their gradient; hidden states are whole. On the CPU only. Throws Error if
  /// the model cannot be divided that way.
  LlamaStage(const LlamaConfig& config, const StageSpan& span, const TensorSlice& slice,
             std::shared_ptr<StagePasses> passes, uint64_t seed);
  ~LlamaStage();
  LlamaStage(LlamaStage&&) noexcept;
  LlamaStage& operator=(LlamaStage&&) noexcept;

  /// Of the whole model.
  const LlamaConfig& config() const;
  const StageSpan& span() const;
  const TensorSlice& slice() const;
  /// Where weights and activations lie. Inputs may come from the other device; they are copied.
  Device device() const;

  /// Forward pass of a stage that embeds. Returns logits [B, T, V] if the stage has the head, else
  /// hidden states [B, T, C]. The result belongs to the microbatch: it may be overwritten (a loss
  /// replaces logits by their gradient), and is valid until its backward or discard.
  /// Throws Error for a token outside the vocabulary, T > context, or a microbatch in flight.
  Tensor forward(const TokenBatch& tokens, int microbatch = 0);
  /// Forward pass of a stage that does not embed; input [B, T, C] from the previous stage.
  Tensor forward(const Tensor& hidden, int microbatch = 0);

  /// Backward pass of a microbatch in flight: takes the gradient of the loss with respect to what
  /// its forward returned (same shape; may be overwritten), adds to the weights' gradients, and
  /// returns the gradient with respect to the input, [B, T, C] (undefined if the stage embeds).
  Tensor backward(const Tensor& output_gradient, int microbatch = 0);

  /// Forgets a microbatch in flight, for forward passes that need no backward.
  void discard(int microbatch = 0);

  /// Weights and gradients, each one contiguous buffer in the order of `named_parameters` (gaps
  /// between tensors, for alignment, stay zero). Calling `gradients` or `named_parameters`
  /// completes the gradients: it adds those of a tied head to the embedding's.
  Tensor parameters() const;
  Tensor gradients() const;
  void zero_gradients();

  /// In the order of the layers: embedding, layers, norm, head. A tied head appears once, as the
  /// embedding, when the stage holds both.
  const std::vector<Parameter>& named_parameters() const;

  /// Number of weights, without the gaps.
  int64_t parameter_count() const;

  /// A stage consists of parts, in the order of `named_parameters`: the embedding, each layer, and
  /// norm with head. A part's weights are a piece of the flat buffer: `part_size` elements, gaps
  /// included. A tied head needs the norm's part and the embedding's.
  size_t part_count() const;
  int64_t part_size(size_t part) const;
  const std::string& part_name(size_t part) const;  // "model.layers.3"
  /// The part's piece of `named_parameters`.
  std::span<const Parameter> part_parameters(size_t part) const;

  /// With WeightMemory::kBound the stage begins without memory for weights and gradients. These
  /// functions make a part's weights, or its gradients, views of a flat tensor that has at least as
  /// many elements as the part and is on the stage's device; gaps should be 0. A pass that needs
  /// what is not bound throws Error with the part's name. Such a stage has no flat buffers, so
  /// `parameters` and `gradients` throw; in `named_parameters`, tensors that are not bound are
  /// undefined. A tied head adds its part directly to the embedding's gradient. Not with bfloat16,
  /// which keeps a rounded copy of all weights.
  void bind(size_t part, const Tensor& weights);
  void release(size_t part);
  void bind_gradient(size_t part, const Tensor& gradient);
  void release_gradient(size_t part);
  /// Writes the initial values of the seed into a part's weights, which are bound.
  void initialise(size_t part) const;

  /// Bytes held for microbatches in flight: now, and at most so far.
  size_t activation_bytes() const;
  size_t peak_activation_bytes() const;

  /// For timelines: called when a forward or backward begins and when it has ended.
  enum class Pass { kForward, kBackward };
  using PassObserver = std::function<void(Pass pass, int microbatch, bool begins)>;
  void observe_passes(PassObserver observer);

  /// For sending gradients while the backward pass goes on: called with a parameter's place
  /// in `named_parameters` when this backward pass has added all it adds to its gradient, once per
  /// parameter and pass, the last layer first. A tied head's part has then been added to the
  /// embedding's gradient, which is the last one to be ready. An empty function is not called and
  /// costs nothing.
  ///
  /// On a GPU, "ready" means launched, so the callee may launch work on the gradient or post it.
  /// With such a function, the kernels of backward passes are launched one by one instead of
  /// recorded.
  using GradientReady = std::function<void(size_t parameter)>;
  void when_gradient_ready(GradientReady ready);

  /// For binding weights only while they are needed: `before` is called before a pass computes with
  /// a part, and `after` as soon as it has. A forward pass takes the parts in their order, a
  /// backward pass in the opposite one. With a tied head, the computation of the logits needs two
  /// parts: both `before` are called before it, and both `after` after it. Empty functions are not
  /// called. On a GPU, the kernels of watched passes are launched one by one, not recorded.
  struct PartUse {
    Pass pass = Pass::kForward;
    size_t part = 0;
    std::optional<size_t> next = {};  // the part that this pass needs after it
  };
  using PartObserver = std::function<void(const PartUse& use)>;
  void watch_parts(PartObserver before, PartObserver after);

  /// Keys and values of the tokens so far, for generating text token by token.
  struct KvCache;
  std::shared_ptr<KvCache> new_cache() const;
  /// Appends `tokens` of one sequence to the cache and returns the logits [V] that follow the last.
  /// Whole models only. Throws Error when the cache would exceed the context.
  Tensor decode(std::span<const int32_t> tokens, KvCache& cache) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lab
