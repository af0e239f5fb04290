// How fast this machine does the model's own matrix products: the bar for the training step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/tensor/tensor.h"

namespace lab::bench {

/// Seconds that `body` takes.
template <typename Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The middle one of the values; the mean of the two middle ones if their number is even.
double median(std::vector<double> values);

/// The three matrix products of one linear layer [in -> out] over `rows` positions: forward, and
/// in the backward pass the gradients of input and weight; 2·rows·in·out operations each. On the
/// CPU, in the precision that is set when this is made.
class LinearLayer {
 public:
  LinearLayer(std::string name, int64_t rows, int64_t in, int64_t out, int64_t per_step);

  /// Seconds of the three products together; of each, the best of `repeats`.
  double best_seconds(int repeats) const;
  double flops() const;

  std::string name;
  int64_t per_step;  // how many layers of this shape the model has

 private:
  Tensor x_, unchanged_x_, weight_, y_, weight_gradient_;
};

/// The linear layers of a training step on `rows` positions, as LlamaStage computes them: queries,
/// keys and values are one layer, gate and up another.
std::vector<LinearLayer> linear_layers(const LlamaConfig& config, int64_t rows);

/// GFLOP/s of matrix products [size, size] x [size, size] on the device, of which several follow
/// each other without a wait in between: the best of a few repeats, the practical peak of a GPU in
/// the precision that is set when this is made. Operands are rounded to it once, outside of the
/// times; a step rounds weights and some gradients, and that counts against it.
class SquareProduct {
 public:
  SquareProduct(int64_t size, Device device);
  double best_gflops(int repeats) const;

 private:
  Tensor x_, weight_, y_;
  std::function<void()> multiply_;
};

/// Operations of a training step, multiply and add counted apart: 6 for each matrix weight and
/// position (2 forward, 4 backward), and for attention 6·B·T·(T+1)·heads·D per layer (scores and
/// weighted sums over T·(T+1)/2 causal pairs, 2·2·D forward, twice that backward). What the
/// implementation computes a second time does not count.
double step_flops(const LlamaConfig& config, int64_t batch, int64_t length);

}  // namespace lab::bench
