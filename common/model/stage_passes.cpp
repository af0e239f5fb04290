#include "common/model/stage_passes.h"

#include "common/ops/ops.h"

namespace lab {
namespace {

class WholePasses final : public StagePasses {
 public:
  explicit WholePasses(const std::shared_ptr<LayerScratch>& scratch) : scratch_(scratch) {}

  void embedding_forward(std::span<const int32_t> tokens, const Weight& table,
                         const Tensor& y) override {
    lab::embedding_forward(tokens, table.value, y);
  }
  void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy,
                          const Weight& table) override {
    lab::embedding_backward(tokens, dy, table.gradient);
  }
  void layer_forward(const LayerShape& shape, const LayerWeights& weights,
                     const Tensor& rope_angles, const Tensor& input, LayerActivations& kept,
                     const Tensor& output) override {
    lab::layer_forward(shape, weights, rope_angles, input, kept, *scratch_, output);
  }
  void layer_backward(const LayerShape& shape, const LayerWeights& weights,
                      const Tensor& rope_angles, const Tensor& input, LayerActivations& kept,
                      const Tensor& gradient) override {
    lab::layer_backward(shape, weights, rope_angles, input, kept, *scratch_, gradient);
  }
  void head_forward(const Tensor& x, const Weight& head, const Tensor& logits) override {
    linear_forward(x, head.operand(x.type()), logits);
  }
  void head_backward(const Tensor& dlogits, const Tensor& x, const Weight& head,
                     const Tensor& dx) override {
    linear_backward_weight(dlogits, x, head.gradient);
    linear_backward_input(dlogits, head.operand(x.type()), dx);
  }

 private:
  const std::shared_ptr<LayerScratch>& scratch_;
};

}  // namespace

std::shared_ptr<StagePasses> whole_passes(const std::shared_ptr<LayerScratch>& scratch) {
  return std::make_shared<WholePasses>(scratch);
}

}  // namespace lab
