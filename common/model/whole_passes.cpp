#include "common/model/whole_passes.h"

#include "common/ops/ops.h"

namespace lab {

void WholePasses::embedding_forward(std::span<const int32_t> tokens, const Weight& table,
                                    const Tensor& y) {
  lab::embedding_forward(tokens, table.value, y);
}

void WholePasses::embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                                     const Weight& table) {
  lab::embedding_backward(tokens, dy, table.gradient);
}

void WholePasses::layer_forward(const LayerShape& shape, const LayerWeights& weights,
                                const Tensor& rope_angles, const Tensor& input,
                                LayerActivations& kept, const Tensor& output) {
  lab::layer_forward(shape, weights, rope_angles, input, kept, *scratch_, output);
}

void WholePasses::layer_backward(const LayerShape& shape, const LayerWeights& weights,
                                 const Tensor& rope_angles, const Tensor& input,
                                 LayerActivations& kept, const Tensor& gradient) {
  lab::layer_backward(shape, weights, rope_angles, input, kept, *scratch_, gradient);
}

void WholePasses::head_forward(const Tensor& x, const Weight& head, const Tensor& logits) {
  linear_forward(x, head.operand(x.type()), logits);
}

void WholePasses::head_backward(const Tensor& dlogits, const Tensor& x, const Weight& head,
                                const Tensor& dx) {
  linear_backward_weight(dlogits, x, head.gradient);
  linear_backward_input(dlogits, head.operand(x.type()), dx);
}

}  // namespace lab
