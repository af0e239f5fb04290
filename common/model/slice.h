// TensorSlice: a model whose every layer is divided among several ranks (tensor parallelism).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/model/layer.h"
#include "common/model/weights.h"
#include "common/tensor/tensor.h"

namespace lab {

/// Entries [first, last) of one dimension.
struct Range {
  int64_t first = 0;
  int64_t last = 0;

  int64_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};

/// The entries of `slice` when `count` of them are divided in equal blocks, in the order of the
/// ranks. If that is impossible, blocks differ by one: only vocabularies are divided so.
Range range_of(int64_t count, const TensorSlice& slice);

/// The sizes of a slice: of heads, kv_heads and hidden_dim an equal number, of the vocabulary as
/// `range_of` says. Heads keep their width. Throws Error that names what cannot be divided.
///
/// Megatron-LM repeats heads of keys and values where there are fewer of them than ranks, and pads
/// the vocabulary; here the first is refused, and the second is not needed.
LlamaConfig slice_config(const LlamaConfig& whole, const TensorSlice& slice);

/// How a parameter is divided, by the last words of its name: matrices that follow a norm and both
/// ends of the model by rows, those whose product is added to the residual stream by columns, norms
/// not at all: every rank has them.
enum class Cut { kNone, kRows, kColumns };
Cut cut_of(const std::string& name);

/// The shape of a parameter in the whole model.
Shape whole_shape(const std::string& name, const LlamaConfig& whole);

/// The slice of a whole parameter, as a view.
Tensor slice_of(const std::string& name, const Tensor& whole, const TensorSlice& slice);

/// What a stage computes with its weights. WholePasses does it with whole layers. For a stage that
/// holds only a slice of every layer, lab 10 writes functions that talk to the ranks that have the
/// other slices. N = B*T; tensors of C channels are the same on all of these ranks.
class StagePasses {
 public:
  virtual ~StagePasses() = default;

  /// y [N, C] from this rank's rows of the table; `tokens` may be any of the whole vocabulary.
  virtual void embedding_forward(std::span<const int32_t> tokens, const Weight& table,
                                 const Tensor& y) = 0;
  /// Adds to this rank's rows of the table's gradient.
  virtual void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                                  const Weight& table) = 0;
  /// As lab::layer_forward and layer_backward. `shape.config` is that of the slice.
  virtual void layer_forward(const LayerShape& shape, const LayerWeights& weights,
                             const Tensor& rope_angles, const Tensor& input, LayerActivations& kept,
                             const Tensor& output) = 0;
  virtual void layer_backward(const LayerShape& shape, const LayerWeights& weights,
                              const Tensor& rope_angles, const Tensor& input,
                              LayerActivations& kept, const Tensor& gradient) = 0;
  /// logits [N, V of the slice] of this rank's tokens from x [N, C].
  virtual void head_forward(const Tensor& x, const Weight& head, const Tensor& logits) = 0;
  /// Overwrites dx [N, C] and adds to the gradient of `head`.
  virtual void head_backward(const Tensor& dlogits, const Tensor& x, const Weight& head,
                             const Tensor& dx) = 0;
};

}  // namespace lab
