// WholePasses: the passes of a stage that has all of its layers.
#pragma once

#include <memory>

#include "common/model/layer.h"
#include "common/model/slice.h"

namespace lab {

/// Sends nothing. `scratch` must outlive this object; it may be replaced between passes.
class WholePasses final : public StagePasses {
 public:
  explicit WholePasses(const std::shared_ptr<LayerScratch>& scratch) : scratch_(scratch) {}

  void embedding_forward(std::span<const int32_t> tokens, const Weight& table,
                         const Tensor& y) override;
  void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                          const Weight& table) override;
  void layer_forward(const LayerShape& shape, const LayerWeights& weights,
                     const Tensor& rope_angles, const Tensor& input, LayerActivations& kept,
                     const Tensor& output) override;
  void layer_backward(const LayerShape& shape, const LayerWeights& weights,
                      const Tensor& rope_angles, const Tensor& input, LayerActivations& kept,
                      const Tensor& gradient) override;
  void head_forward(const Tensor& x, const Weight& head, const Tensor& logits) override;
  void head_backward(const Tensor& dlogits, const Tensor& x, const Weight& head,
                     const Tensor& dx) override;

 private:
  const std::shared_ptr<LayerScratch>& scratch_;
};

}  // namespace lab
