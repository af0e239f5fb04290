// StagePasses: what a stage computes with its weights, which are whole layers or slices of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/model/layer.h"
#include "common/model/weights.h"
#include "common/tensor/tensor.h"

namespace lab {

/// What a stage computes with its weights. For a stage that holds only a slice of every layer, lab
/// 10 writes functions that talk to the ranks that have the other slices. N = B*T; tensors of C
/// channels are the same on all of these ranks.
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

/// Those of a stage that has all of its layers; they send nothing. `scratch` must outlive them, and
/// may be replaced between passes.
std::shared_ptr<StagePasses> whole_passes(const std::shared_ptr<LayerScratch>& scratch);

}  // namespace lab
