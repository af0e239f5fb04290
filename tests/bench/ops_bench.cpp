// bench_ops: each operation, and lab 01's loss and Adam, at the sizes of the workbook's model (3
// sequences of 256 tokens), with Google Benchmark. Counters: GFLOP/s for matrix products and
// attention, GB/s of memory that must be read or written at least once for the rest.
//
//   bench_ops [--precision bfloat16] --benchmark_filter=attention
#include <benchmark/benchmark.h>

#include <vector>

#include "common/model/config.h"
#include "common/model/layer.h"
#include "common/ops/ops.h"
#include "common/ops/precision.h"
#include "common/optim/optimizer.h"
#include "common/run/options/choose_device.h"
#include "common/run/options/command_line.h"
#include "common/run/options/main_guard.h"
#include "labs/01_single_gpu/single_gpu.h"

namespace lab {
namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kLength = 256;
constexpr int64_t kRows = kBatch * kLength;
const LlamaConfig kConfig;
const int64_t kDim = kConfig.dim;
const int64_t kHidden = kConfig.hidden_dim;

/// Numbers between -1 and 1 without a pattern that matters.
Tensor filled(Shape shape) {
  Tensor tensor = Tensor::empty(std::move(shape));
  uint32_t state = 1;
  for (float& element : tensor.values()) {
    state = state * 1664525U + 1013904223U;
    element = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
  }
  return tensor;
}

/// The same numbers in the type in which operations of a layer pass them on.
Tensor between(Shape shape) {
  Tensor room;
  return between_operations(filled(std::move(shape)), {.precision = precision(Device::kCpu)}, room);
}

void set_gflops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// `passes`: how often each byte of `tensor` moves; the sum over tensors is what an operation must
/// read and write.
struct Traffic {
  const Tensor& tensor;
  double passes;
};
void set_bandwidth(benchmark::State& state, std::initializer_list<Traffic> traffic) {
  double bytes = 0.0;
  for (const Traffic& t : traffic) bytes += t.passes * static_cast<double>(t.tensor.bytes());
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// --- Matrix products. Arguments: in, out.

double product_flops(int64_t in, int64_t out) {
  return 2.0 * static_cast<double>(kRows) * static_cast<double>(in * out);
}

void linear_forward(benchmark::State& state) {
  const Tensor x = between({kRows, state.range(0)});
  const Tensor weight = between({state.range(1), state.range(0)});
  const Tensor y = between({kRows, state.range(1)});
  for ([[maybe_unused]] auto iteration : state) lab::linear_forward(x, weight, y);
  set_gflops(state, product_flops(state.range(0), state.range(1)));
}

void linear_backward_input(benchmark::State& state) {
  const Tensor dy = between({kRows, state.range(1)});
  const Tensor weight = between({state.range(1), state.range(0)});
  const Tensor dx = between({kRows, state.range(0)});
  for ([[maybe_unused]] auto iteration : state) lab::linear_backward_input(dy, weight, dx);
  set_gflops(state, product_flops(state.range(0), state.range(1)));
}

void linear_backward_weight(benchmark::State& state) {
  const Tensor dy = between({kRows, state.range(1)});
  const Tensor x = between({kRows, state.range(0)});
  const Tensor dweight = Tensor::zeros({state.range(1), state.range(0)});
  for ([[maybe_unused]] auto iteration : state) lab::linear_backward_weight(dy, x, dweight);
  set_gflops(state, product_flops(state.range(0), state.range(1)));
}

void layer_sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"in", "out"})
      ->Args({kDim, 3 * kDim})
      ->Args({kDim, kDim})
      ->Args({kDim, 2 * kHidden})
      ->Args({kHidden, kDim})
      ->Args({kDim, 4096})
      ->Args({kDim, 32000});
}
BENCHMARK(linear_forward)->Apply(layer_sizes)->UseRealTime();
BENCHMARK(linear_backward_input)->Apply(layer_sizes)->UseRealTime();
BENCHMARK(linear_backward_weight)->Apply(layer_sizes)->UseRealTime();

// --- Attention: 2·D operations for each score and each weighted sum, of causal pairs only.

const AttentionShape kAttention{kBatch,        kLength,          kLength,
                                kConfig.heads, kConfig.kv_heads, kConfig.head_dim()};

double attention_flops() {
  return 2.0 * static_cast<double>(kBatch * kLength * (kLength + 1) * kDim);
}

void attention_forward(benchmark::State& state) {
  const Tensor qkv = between({kRows, 3 * kDim});
  const Tensor y = between({kRows, kDim});
  const Tensor logsumexp = Tensor::empty({kBatch, kConfig.heads, kLength});
  for ([[maybe_unused]] auto iteration : state)
    lab::attention_forward(kAttention, qkv.columns(0, kDim), qkv.columns(kDim, 2 * kDim),
                           qkv.columns(2 * kDim, 3 * kDim), y, logsumexp);
  set_gflops(state, attention_flops());
}
BENCHMARK(attention_forward)->UseRealTime();

void attention_backward(benchmark::State& state) {
  const Tensor qkv = between({kRows, 3 * kDim});
  const Tensor q = qkv.columns(0, kDim);
  const Tensor k = qkv.columns(kDim, 2 * kDim);
  const Tensor v = qkv.columns(2 * kDim, 3 * kDim);
  const Tensor y = between({kRows, kDim});
  const Tensor logsumexp = Tensor::empty({kBatch, kConfig.heads, kLength});
  lab::attention_forward(kAttention, q, k, v, y, logsumexp);
  const Tensor dy = between({kRows, kDim});
  const Tensor gradient = between({kRows, 3 * kDim});
  for ([[maybe_unused]] auto iteration : state)
    lab::attention_backward(kAttention, dy, q, k, v, y, logsumexp, gradient.columns(0, kDim),
                            gradient.columns(kDim, 2 * kDim), gradient.columns(2 * kDim, 3 * kDim));
  set_gflops(state, 2.0 * attention_flops());
}
BENCHMARK(attention_backward)->UseRealTime();

void rope(benchmark::State& state) {
  const Tensor x = between({kRows, 2 * kDim});
  const Tensor table = rope_table(kLength, kConfig.head_dim(), kConfig.rope_theta);
  for ([[maybe_unused]] auto iteration : state) lab::rope(x, table, kLength, 0, Rotation::kForward);
  set_bandwidth(state, {{x, 2}});
}
BENCHMARK(rope)->UseRealTime();

// --- What memory limits.

void rmsnorm_forward(benchmark::State& state) {
  const Tensor x = filled({kRows, kDim});
  const Tensor weight = filled({kDim});
  const Tensor y = between({kRows, kDim});
  const Tensor inverse_rms = Tensor::empty({kRows});
  for ([[maybe_unused]] auto iteration : state)
    lab::rmsnorm_forward(x, weight, 1e-6F, y, inverse_rms);
  set_bandwidth(state, {{x, 1}, {y, 1}});
}
BENCHMARK(rmsnorm_forward)->UseRealTime();

void rmsnorm_backward(benchmark::State& state) {
  const Tensor dy = between({kRows, kDim});
  const Tensor x = filled({kRows, kDim});
  const Tensor weight = filled({kDim});
  const Tensor dx = Tensor::zeros({kRows, kDim});
  const Tensor dweight = Tensor::zeros({kDim});
  const Tensor inverse_rms = filled({kRows});
  for ([[maybe_unused]] auto iteration : state)
    lab::rmsnorm_backward(dy, x, weight, inverse_rms, dx, dweight);
  set_bandwidth(state, {{dy, 1}, {x, 1}, {dx, 2}});
}
BENCHMARK(rmsnorm_backward)->UseRealTime();

void swiglu_forward(benchmark::State& state) {
  const Tensor gate_up = between({kRows, 2 * kHidden});
  const Tensor y = between({kRows, kHidden});
  for ([[maybe_unused]] auto iteration : state) lab::swiglu_forward(gate_up, y);
  set_bandwidth(state, {{gate_up, 1}, {y, 1}});
}
BENCHMARK(swiglu_forward)->UseRealTime();

void swiglu_backward(benchmark::State& state) {
  const Tensor gate_up = between({kRows, 2 * kHidden});
  const Tensor dy = between({kRows, kHidden});
  const Tensor same_gate_up = gate_up.clone();
  const Tensor same_dy = dy.clone();
  for ([[maybe_unused]] auto iteration : state) {
    // It overwrites its inputs; repeated on its own results they would soon be 0 or infinite.
    state.PauseTiming();
    gate_up.copy_from(same_gate_up);
    dy.copy_from(same_dy);
    state.ResumeTiming();
    lab::swiglu_backward(gate_up, dy);
  }
  set_bandwidth(state, {{gate_up, 2}, {dy, 2}});
}
BENCHMARK(swiglu_backward)->UseRealTime();

std::vector<int32_t> some_tokens() {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kRows; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % 4096));
  return tokens;
}

void embedding_forward(benchmark::State& state) {
  const std::vector<int32_t> tokens = some_tokens();
  const Tensor table = filled({4096, kDim});
  const Tensor y = Tensor::empty({kRows, kDim});
  for ([[maybe_unused]] auto iteration : state) lab::embedding_forward(tokens, table, y);
  set_bandwidth(state, {{y, 2}});
}
BENCHMARK(embedding_forward)->UseRealTime();

void embedding_backward(benchmark::State& state) {
  const std::vector<int32_t> tokens = some_tokens();
  const Tensor dy = filled({kRows, kDim});
  const Tensor dtable = Tensor::zeros({4096, kDim});
  for ([[maybe_unused]] auto iteration : state) lab::embedding_backward(tokens, dy, dtable);
  set_bandwidth(state, {{dy, 3}});
}
BENCHMARK(embedding_backward)->UseRealTime();

// --- Lab 01's functions, of the solution. Argument: vocabulary, or number of weights.

void causal_lm_loss(benchmark::State& state) {
  const TokenBatch batch{kBatch, kLength, some_tokens()};
  const Tensor logits = filled({kBatch, kLength, state.range(0)});
  for ([[maybe_unused]] auto iteration : state)  // a gradient makes as good logits as any
    benchmark::DoNotOptimize(lab01::causal_lm_loss(logits, batch, batch.target_count()));
  set_bandwidth(state, {{logits, 2}});
}
BENCHMARK(causal_lm_loss)->Arg(4096)->Arg(32000)->UseRealTime();

void adam_step(benchmark::State& state) {
  const Tensor weights = filled({state.range(0)});
  const Tensor gradients = filled({state.range(0)});
  Adam optimizer(state.range(0), AdamConfig{}, lab01::adam_update);
  for ([[maybe_unused]] auto iteration : state) optimizer.step(weights, gradients, 1e-3F);
  set_bandwidth(state, {{gradients, 1}, {weights, 2 * 3}});  // weights and both moments
}
BENCHMARK(adam_step)->Arg(10'325'664)->Arg(26'398'368)->UseRealTime();

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own options away
  std::string precision = "float32";
  CommandLine app("Times each operation; --benchmark_filter=NAME and other options are Google's");
  app.add("--precision", precision, "", "of computing: float32 or bfloat16").shows_default();
  app.read(argc, argv);
  choose_device("cpu", precision);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace lab

int main(int argc, char** argv) { return lab::run_main(argc, argv, lab::run); }
