// Optimizers over one flat buffer of weights: plain SGD, Adam and AdamW.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/tensor/tensor.h"

namespace lab {

/// Updates weights from their gradients. State tensors have the layout of the weights' flat buffer,
/// so that a checkpoint can store them under the names of the parameters.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update of all weights. `parameters` and `gradients` are flat, of the size given at
  /// construction.
  virtual void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) = 0;

  /// State to save, e.g. {"exp_avg", m}; views, so that loading writes through them.
  struct State {
    std::string name;
    Tensor value;
  };
  virtual std::vector<State> state() const { return {}; }

  /// Number of updates so far, 0 before the first; set when a checkpoint is loaded.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 protected:
  int64_t steps_ = 0;
};

/// w -= learning_rate * g. No momentum: the update is linear in the gradients, which is why tests
/// of gradient scale use it.
class Sgd final : public Optimizer {
 public:
  void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) override;
};

struct AdamConfig {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
};

/// The Adam update of a block of weights; lab 01 writes it. `step` counts from 1. All spans have
/// the same length; `parameters`, `first_moment` and `second_moment` are updated in place. For
/// weights on a GPU, the spans are in its memory and hold all weights.
using AdamUpdate = void (*)(const AdamConfig& config, float learning_rate, int64_t step,
                            std::span<float> parameters, std::span<const float> gradients,
                            std::span<float> first_moment, std::span<float> second_moment);

/// Adam (Kingma and Ba, 2015) over blocks of the buffer, on all cores. With a weight decay it is
/// AdamW (Loshchilov and Hutter, 2019): weights first shrink by the fraction learning_rate *
/// weight_decay.
class Adam final : public Optimizer {
 public:
  /// `size`: elements of the flat buffer; `device`: where it is.
  Adam(int64_t size, const AdamConfig& config, AdamUpdate update, float weight_decay = 0.0F,
       Device device = Device::kCpu);
  void step(const Tensor& parameters, const Tensor& gradients, float learning_rate) override;
  std::vector<State> state() const override;

 private:
  AdamConfig config_;
  AdamUpdate update_;
  float weight_decay_;
  Tensor first_moment_;
  Tensor second_moment_;
};

}  // namespace lab
