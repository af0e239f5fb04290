#include "tests/bench/matmul_rate.h"

#include <algorithm>

#include "common/gpu/kernels/rounded_product.h"
#include "common/ops/ops.h"
#include "common/ops/precision.h"
#include "common/tensor/accelerator.h"

namespace lab::bench {
namespace {

Tensor filled(Shape shape) {
  Tensor tensor = Tensor::empty(std::move(shape));
  float value = 0.0F;
  for (float& element : tensor.values()) {
    element = value;
    value = value > 1.0F ? -1.0F : value + 0.01F;
  }
  return tensor;
}

/// The operand of a product on the CPU, in its precision.
Tensor operand(Shape shape) {
  const bool rounds = precision(Device::kCpu) == Precision::kBfloat16;
  const Tensor numbers = filled(std::move(shape));
  const Tensor result = Tensor::empty(numbers.shape(), Device::kCpu,
                                      rounds ? ElementType::kBfloat16 : ElementType::kFloat32);
  result.copy_from(numbers);
  return result;
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

LinearLayer::LinearLayer(std::string layer_name, int64_t rows, int64_t in, int64_t out,
                         int64_t count)
    : name(std::move(layer_name)),
      per_step(count),
      x_(operand({rows, in})),
      unchanged_x_(x_.clone()),
      weight_(operand({out, in})),
      y_(operand({rows, out})),
      weight_gradient_(filled({out, in})) {}

double LinearLayer::best_seconds(int repeats) const {
  double forward = 1e9;
  double input = 1e9;
  double weight = 1e9;
  for (int i = 0; i < repeats; ++i) {
    forward = std::min(forward, seconds([&] { linear_forward(x_, weight_, y_); }));
    input = std::min(input, seconds([&] { linear_backward_input(y_, weight_, x_); }));
    weight = std::min(weight, seconds([&] { linear_backward_weight(y_, x_, weight_gradient_); }));
    // Undo what the products have grown to: infinities might be slower or faster than numbers.
    x_.copy_from(unchanged_x_);
    weight_gradient_.fill(0.0F);
  }
  return forward + input + weight;
}

double LinearLayer::flops() const {
  return 3.0 * 2.0 * static_cast<double>(x_.size(0)) * static_cast<double>(weight_.numel());
}

std::vector<LinearLayer> linear_layers(const LlamaConfig& c, int64_t rows) {
  const int64_t q = c.heads * c.head_dim();
  const int64_t k = c.kv_heads * c.head_dim();
  std::vector<LinearLayer> layers;
  layers.emplace_back("qkv", rows, c.dim, q + 2 * k, c.layers);
  layers.emplace_back("attention out", rows, q, c.dim, c.layers);
  layers.emplace_back("gate and up", rows, c.dim, 2 * c.hidden_dim, c.layers);
  layers.emplace_back("down", rows, c.hidden_dim, c.dim, c.layers);
  layers.emplace_back("head", rows, c.dim, c.vocab_size, 1);
  return layers;
}

SquareProduct::SquareProduct(int64_t size, Device device)
    : x_(filled({size, size}).to(device)),
      weight_(filled({size, size}).to(device)),
      y_(Tensor::empty({size, size}, device)) {
  if (device == Device::kCuda)
    multiply_ = cuda::product_of_rounded(x_, weight_, y_);
  else
    multiply_ = [x = x_, weight = weight_, y = y_] { linear_forward(x, weight, y); };
}

double SquareProduct::best_gflops(int repeats) const {
  constexpr int kInARow = 10;
  const bool on_gpu = x_.device() == Device::kCuda;
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    best = std::min(best, seconds([&] {
                      for (int k = 0; k < kInARow; ++k) multiply_();
                      if (on_gpu) accelerator().synchronize();
                    }));
  }
  const auto size = static_cast<double>(x_.size(0));
  return kInARow * 2.0 * size * size * size / best / 1e9;
}

double step_flops(const LlamaConfig& c, int64_t batch, int64_t length) {
  const int64_t q = c.heads * c.head_dim();
  const int64_t k = c.kv_heads * c.head_dim();
  const int64_t per_layer = c.dim * (2 * q + 2 * k) + 3 * c.dim * c.hidden_dim;
  const int64_t weights = c.layers * per_layer + c.dim * c.vocab_size;
  const int64_t attention = c.layers * batch * length * (length + 1) * q;
  return 6.0 * (static_cast<double>(weights) * static_cast<double>(batch * length) +
                static_cast<double>(attention));
}

}  // namespace lab::bench
