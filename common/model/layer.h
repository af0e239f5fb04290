// One transformer layer: attention and MLP, each preceded by an RMSNorm and added to its input.
#pragma once

#include <cstdint>

#include "common/model/config.h"
#include "common/model/weights.h"
#include "common/ops/ops.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/tensor.h"

namespace lab {

/// Where a layer keeps its numbers, and how it computes with them.
struct LayerMemory {
  Device device = Device::kCpu;
  Precision precision = Precision::kFloat32;

  /// Whether tensors between the operations of a layer are bfloat16. The residual stream, sums, and
  /// everything that belongs to weights stay float32.
  bool rounds() const { return precision == Precision::kBfloat16; }
  ElementType between() const { return rounds() ? ElementType::kBfloat16 : ElementType::kFloat32; }

  bool operator==(const LayerMemory&) const = default;
};

/// float32 numbers in the type that the operations of a layer take: as they are, or rounded into
/// `room`, which is allocated unless it already has the shape of `x`. Reuse it: fresh memory costs
/// more than the rounding, because the kernel has to clear it.
Tensor between_operations(const Tensor& x, const LayerMemory& memory, Tensor& room);

/// What a layer's forward pass keeps of one microbatch for its backward pass; N = B*T. What is
/// cheap to compute again (norms, SwiGLU) or large (attention scores) is not kept.
struct LayerActivations {
  LayerActivations(const LlamaConfig& config, int64_t batch, int64_t length, LayerMemory memory);

  Tensor attention_inverse_rms;  // [N]
  Tensor qkv;                    // [N, Q+2K], queries and keys rotated
  Tensor attention;              // [N, Q], output of attention before its projection
  Tensor logsumexp;              // [B, heads, T]
  Tensor middle;                 // [N, C], after attention was added
  Tensor mlp_inverse_rms;        // [N]
  Tensor gate_up;                // [N, 2H], the backward pass turns it into its gradient

  size_t bytes() const;
};

/// Scratch memory shared by all layers of a stage; its contents do not survive a call.
struct LayerScratch {
  LayerScratch(const LlamaConfig& config, int64_t batch, int64_t length, LayerMemory memory);

  LayerMemory memory;
  Tensor normed;           // [N, C]
  Tensor normed_gradient;  // [N, C]
  Tensor hidden;           // [N, H]
  Tensor attention;        // [N, Q]
  Tensor qkv;              // [N, Q+2K]
  // Gradients that were rounded; undefined until there is one.
  Tensor rounded;         // [N, C]
  Tensor rounded_logits;  // [B, T, V]
};

/// Keys and values of the positions of one sequence, [room, K] each.
struct KeysAndValues {
  Tensor keys;
  Tensor values;
};

/// Geometry of one call: B sequences of T positions.
struct LayerShape {
  const LlamaConfig& config;
  int64_t batch;
  int64_t length;
  int64_t past = 0;  // positions before these, to which they attend, too

  /// As attention_forward and attention_backward want it.
  AttentionShape attention() const;
};

/// output [N, C] = layer(input [N, C]), which may be the same tensor if there is no backward pass;
/// fills `kept`. `cache` has the keys and values of the past, if there is one, and receives those
/// of this call.
void layer_forward(const LayerShape& shape, const LayerWeights& weights, const Tensor& rope_angles,
                   const Tensor& input, LayerActivations& kept, LayerScratch& scratch,
                   const Tensor& output, const KeysAndValues* cache = nullptr);

/// `gradient` [N, C] is with respect to the output on entry and to the input on return. Adds to the
/// gradients of the weights and consumes `kept`.
void layer_backward(const LayerShape& shape, const LayerWeights& weights, const Tensor& rope_angles,
                    const Tensor& input, LayerActivations& kept, LayerScratch& scratch,
                    const Tensor& gradient);

}  // namespace lab
