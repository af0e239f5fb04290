// The rank program of lab 01's CUDA part: the contract's functions, and the scenarios that call
// them, on a GPU or in the emulation.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "common/tensor/accelerator.h"
#include "common/todo.h"
#include "labs/01cuda_kernels/kernels.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/labs/01cuda_kernels/machine.h"

using lab::Tensor;
using lab::grading::own;
using lab::grading::Parcel;

namespace lab01cuda {

// The contract's functions.

void launch_rmsnorm(const float* x, const float* weight, float epsilon, float* y,
                    float* inverse_rms, int64_t rows, int64_t channels) {
  return own(&launch_rmsnorm)(x, weight, epsilon, y, inverse_rms, rows, channels);
}

void launch_softmax_cross_entropy(float* logits, const int32_t* targets, float scale, float* losses,
                                  int64_t rows, int64_t vocab) {
  return own(&launch_softmax_cross_entropy)(logits, targets, scale, losses, rows, vocab);
}

void launch_adam(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 float* parameters, const float* gradients, float* first_moment,
                 float* second_moment, int64_t count) {
  return own(&launch_adam)(config, learning_rate, step, parameters, gradients, first_moment,
                           second_moment, count);
}

namespace {

struct Array {
  std::string name;
  Tensor values;  // before the call
  bool constant = false;
};

/// Starts the student's kernel on arrays in GPU memory, with the call's other arguments, or with
/// different ones.
using Launch = std::function<void(const std::vector<float*>& arrays, bool differently)>;

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

Tensor filled(const lab::Shape& shape, float value) {
  const Tensor tensor = Tensor::empty(shape);
  tensor.fill(value);
  return tensor;
}

/// The numbers, with a fence before and after them: every result that it enters is not a number,
/// and writing to it changes its bits.
Tensor fenced(const Tensor& values, int64_t fence) {
  const Tensor all =
      filled({values.numel() + 2 * fence}, std::numeric_limits<float>::signaling_NaN());
  std::ranges::copy(values.values(), all.data() + fence);
  return all;
}

/// What a call has left in the arrays; `after_another`: which another call has had before, in the
/// same place. What is wrong with it goes into `result`: see run().
std::vector<Tensor> run_once(int order, int block_step, const std::vector<Array>& arrays,
                             int64_t fence, const Launch& launch, Parcel& result,
                             bool after_another = false) {
  // Each array has another alignment: one that is a multiple of 16 bytes says nothing of the next.
  const auto before_array = [fence](size_t i) {
    return fence == 0 ? 0 : fence + static_cast<int64_t>(i);
  };
  std::vector<Tensor> memory;
  std::vector<float*> addresses;
  for (size_t i = 0; i < arrays.size(); ++i) {
    memory.push_back(fenced(arrays[i].values, before_array(i)).to(lab::Device::kCuda));
    addresses.push_back(memory.back().data() + before_array(i));
  }
  const auto start = [&](bool differently) {
    try {
      launch(addresses, differently);
    } catch (const lab::NotImplemented&) {
      throw;
    } catch (const lab::Error& error) {
      result.set_text("refused", error.what());
    }
  };
  std::vector<Tensor> outputs;
  const auto read = [&] {
    for (size_t i = 0; i < arrays.size(); ++i) {
      const Tensor all = memory[i].to(lab::Device::kCpu);
      const Tensor& before = arrays[i].values;
      const int64_t first = before_array(i);
      outputs.push_back(all.rows(first, all.numel() - first).clone().view(before.shape()));
      if (!same_bits(all, fenced(outputs[i], first))) result.set_text("fence", arrays[i].name);
      if (arrays[i].constant && !same_bits(outputs[i], before))
        result.set_text("changed", arrays[i].name);
    }
  };
  if (after_another) {
    watch(
        order, block_step, [&] { start(true); }, [] {});
    for (size_t i = 0; i < arrays.size(); ++i)
      memory[i].copy_from(fenced(arrays[i].values, before_array(i)));
  }
  const Work work = watch(
      order, block_step, [&] { start(false); }, read);
  if (!work.finding.empty()) result.set_text("finding", work.finding);
  for (const auto& [name, count] : work.counts) result.set(name, count);
  return outputs;
}

/// Makes the call in several orders of the threads. The result holds the arrays by name, the counts
/// of Work, and if there is one of these
///   refused    the error of the launch
///   finding    what the emulation has found wrong
///   fence      the array beside which something was overwritten
///   changed    the array that should have stayed as it was
///   unsteady   the array that has other bits in another order of the threads
///   kept       the array that has other bits when the very same call is made again, or after
///              another one with the same arrays
Parcel run(const Parcel& input, const std::vector<Array>& arrays, const Launch& launch) {
  constexpr int64_t kLongCall = 2000;  // elements: takes too much time to be made after another
  const auto fence = std::max(static_cast<int64_t>(input.number("fence")), least_fence());
  constexpr int kOrders = 4;
  const int step = static_cast<int>(input.number("block_step"));
  Parcel result;
  std::vector<Tensor> first;
  for (int order = 0; order < kOrders; ++order) {
    const std::vector<Tensor> outputs = run_once(order, step, arrays, fence, launch, result);
    for (const char* problem : {"refused", "finding", "fence", "changed"})
      if (result.has(problem)) return result;
    if (order == 0) first = outputs;
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (order == 0) result.set(arrays[i].name, outputs[i]);
      if (same_bits(outputs[i], first[i])) continue;
      const std::vector<Tensor> again = run_once(0, step, arrays, fence, launch, result);
      const bool steady = again.size() <= i || same_bits(again[i], first[i]);
      result.set_text(steady || !result.has("kernels") ? "unsteady" : "kept", arrays[i].name);
      return result;
    }
  }
  if (arrays[0].values.numel() > kLongCall) return result;
  Parcel counts;
  const std::vector<Tensor> again = run_once(0, step, arrays, fence, launch, counts, true);
  for (size_t i = 0; i < again.size(); ++i)
    if (!same_bits(again[i], first[i])) result.set_text("kept", arrays[i].name);
  return result;
}

float number(const Parcel& input, const std::string& name) {
  return static_cast<float>(input.number(name));
}

Parcel run_rmsnorm(const Parcel& input) {
  const Tensor& x = input.tensor("x");
  return run(input,
             {{"x", x, true},
              {"weight", input.tensor("weight"), true},
              {"y", filled(x.shape(), kUntouched)},
              {"inverse_rms", filled({x.size(0)}, kUntouched)}},
             [&](const std::vector<float*>& a, bool differently) {
               const float epsilon = number(input, "epsilon") * (differently ? 3 : 1);
               launch_rmsnorm(a[0], a[1], epsilon, a[2], a[3], x.size(0), x.size(1));
             });
}

Parcel run_softmax_cross_entropy(const Parcel& input) {
  const Tensor& logits = input.tensor("logits");
  // 32-bit integers travel in tensors, bit by bit.
  const Tensor targets = Tensor::empty({logits.size(0)});
  for (int64_t n = 0; n < targets.numel(); ++n) {
    const auto target = static_cast<int32_t>(input.tensor("targets").data()[n]);
    std::memcpy(targets.data() + n, &target, sizeof target);
  }
  return run(input,
             {{"logits", logits},
              {"targets", targets, true},
              {"losses", filled({logits.size(0)}, kUntouched)}},
             [&](const std::vector<float*>& a, bool differently) {
               const float scale = number(input, "scale") + (differently ? 1 : 0);
               launch_softmax_cross_entropy(a[0], reinterpret_cast<const int32_t*>(a[1]), scale,
                                            a[2], logits.size(0), logits.size(1));
             });
}

Parcel run_adam(const Parcel& input) {
  const std::vector<double> constants = input.numbers("constants");
  const std::vector<float> c(constants.begin(), constants.end());
  const lab::AdamConfig config{.beta1 = c[0], .beta2 = c[1], .epsilon = c[2]};
  const Tensor& gradients = input.tensor("gradients");
  return run(input,
             {{"parameters", input.tensor("parameters")},
              {"gradients", gradients, true},
              {"first_moment", input.tensor("first_moment")},
              {"second_moment", input.tensor("second_moment")}},
             [&](const std::vector<float*>& a, bool differently) {
               const float rate = c[3] + (differently ? 1 : 0);
               const auto step = static_cast<int64_t>(input.number("step")) + (differently ? 1 : 0);
               launch_adam(config, rate, step, a[0], a[1], a[2], a[3], gradients.numel());
             });
}

/// For the tests on a GPU: whether there is one, and why not. Exit code 77 means "skipped".
int tell_device() {
  const lab::AcceleratorSupport support = lab::accelerator_support();
  if (support.count > 0) fmt::print("{}\n", lab::accelerator().name());
  if (support.count == 0) fmt::print("skipped: {}\n", support.problem);
  return support.count > 0 ? 0 : 77;
}

}  // namespace
}  // namespace lab01cuda

int main(int argc, char** argv) {
  // Each array is a separate allocation of exactly its size: the emulation sees where it ends.
  setenv("LAB_CUDA_CACHE", "0", 1);
  if (argc == 2 && std::string_view(argv[1]) == "--device") return lab01cuda::tell_device();
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"rmsnorm", lab01cuda::run_rmsnorm},
                 {"softmax_cross_entropy", lab01cuda::run_softmax_cross_entropy},
                 {"adam", lab01cuda::run_adam}}});
}
