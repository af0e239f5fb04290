// The rank program of lab 01's CUDA part: calls an implementation's kernels on what the verdict
// sends, on a GPU or in the emulation.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/grading/rank_main.h"
#include "common/tensor/accelerator.h"
#include "labs/01cuda_kernels/kernels.h"
#include "tests/labs/01cuda_kernels/fenced_array.h"
#include "tests/labs/01cuda_kernels/machine.h"
#include "tests/labs/01cuda_kernels/untouched.h"

namespace lab01cuda {
namespace {

using lab::Tensor;
using lab::grading::Parcel;

/// What a call has left behind, by name.
using Outputs = std::map<std::string, Tensor>;

Tensor untouched(const lab::Shape& shape) {
  const Tensor tensor = Tensor::empty(shape);
  tensor.fill(kUntouched);
  return tensor;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

/// The arrays of one call.
class Arrays {
 public:
  explicit Arrays(int64_t fence) : fence_(fence) {}

  float* add(const std::string& name, const Tensor& values) {
    return arrays_.try_emplace(name, values, fence_).first->second.data();
  }
  Outputs read() const {
    Outputs outputs;
    for (const auto& [name, array] : arrays_) outputs[name] = array.read();
    return outputs;
  }
  /// The first one whose fence was overwritten; empty if none.
  std::string broken_fence() const {
    for (const auto& [name, array] : arrays_)
      if (!array.fence_is_intact()) return name;
    return "";
  }

 private:
  int64_t fence_;
  std::map<std::string, FencedArray> arrays_;
};

/// Starts the student's kernel on these arrays.
using Call = std::function<void(Arrays&)>;

using Numbers = std::vector<double>;

/// `count` calls of the student's function; whether there is something to do for them.
struct Calls {
  int64_t count = 1;
  bool have_work = true;
};

/// Makes the calls once for every order of the threads. What they leave goes into `result`, each
/// name followed by `suffix`, and beside the numbers
///   finding      what the emulation has found wrong
///   fence        the array beside which something was overwritten
///   unsteady     the order in which other bits came out than in the first one, and where
///   launches     how many kernels ran, of how many calls, if there were too many or too few
///   most_read    (with the suffix) how many numbers a single thread of the last kernel has read
/// Returns false if it is no use to go on.
bool record(Parcel& result, const std::string& suffix, int64_t fence, const Calls& calls,
            const Call& call) {
  Outputs first;
  for (int order = 0; order < thread_orders(); ++order) {
    choose_thread_order(order);
    Arrays arrays(fence);
    Outputs outputs;
    const std::optional<int> before = kernels_run();
    int64_t launches = calls.count;
    const std::string finding = finding_of([&] {
      call(arrays);
      lab::accelerator().synchronize();
      if (before) launches = *kernels_run() - *before;
      outputs = arrays.read();
    });
    if (!finding.empty()) {
      result.set_text("finding", finding);
      return false;
    }
    if (const std::string name = arrays.broken_fence(); !name.empty()) {
      result.set_text("fence", name);
      return false;
    }
    if (order == 0) {
      first = outputs;
      if (launches > calls.count || (launches < calls.count && calls.have_work))
        result.set("launches",
                   Numbers{static_cast<double>(launches), static_cast<double>(calls.count)});
      if (const std::optional<int64_t> most = most_numbers_read(); most && launches > 0)
        result.set("most_read" + suffix, static_cast<double>(*most));
      for (const auto& [name, tensor] : outputs) result.set(name + suffix, tensor);
      continue;
    }
    for (const auto& [name, tensor] : outputs)
      if (!same_bits(tensor, first[name]) && !result.has("unsteady"))
        result.set_text("unsteady",
                        fmt::format("{}, threads in order {} and {}", name, name_of_thread_order(0),
                                    name_of_thread_order(order)));
  }
  return true;
}

/// Task C1, once for each of the `count` matrices "x.0", "x.1", ...
Parcel run_rmsnorm(const Parcel& input) {
  const auto epsilon = static_cast<float>(input.number("epsilon"));
  Parcel result;
  for (int k = 0; k < static_cast<int>(input.number("count")); ++k) {
    const Tensor x = input.tensor(fmt::format("x.{}", k));
    const int64_t rows = x.size(0);
    const auto call = [&](Arrays& arrays) {
      const float* in = arrays.add("x", x);
      const float* weight = arrays.add("weight", input.tensor(fmt::format("weight.{}", k)));
      float* y = arrays.add("y", untouched(x.shape()));
      launch_rmsnorm(in, weight, epsilon, y, arrays.add("inverse_rms", untouched({rows})), rows,
                     x.size(1));
    };
    if (!record(result, fmt::format(".{}", k), static_cast<int64_t>(input.number("fence")),
                {.have_work = rows > 0}, call))
      break;
  }
  return result;
}

/// 32-bit integers travel in tensors, bit by bit.
const int32_t* as_tokens(const float* data) { return reinterpret_cast<const int32_t*>(data); }

Tensor tokens_of(const std::vector<double>& targets) {
  const Tensor tensor = Tensor::empty({static_cast<int64_t>(targets.size())});
  for (size_t n = 0; n < targets.size(); ++n) {
    const auto target = static_cast<int32_t>(targets[n]);
    std::memcpy(tensor.data() + n, &target, sizeof target);
  }
  return tensor;
}

/// Task C2, once for each of the `count` matrices "logits.0", "logits.1", ...
Parcel run_softmax_cross_entropy(const Parcel& input) {
  const auto scale = static_cast<float>(input.number("scale"));
  Parcel result;
  for (int k = 0; k < static_cast<int>(input.number("count")); ++k) {
    const Tensor scores = input.tensor(fmt::format("logits.{}", k));
    const int64_t rows = scores.size(0);
    const Tensor targets = tokens_of(input.numbers(fmt::format("targets.{}", k)));
    const auto call = [&](Arrays& arrays) {
      float* logits = arrays.add("logits", scores);
      const float* tokens = arrays.add("targets", targets);
      launch_softmax_cross_entropy(logits, as_tokens(tokens), scale,
                                   arrays.add("losses", untouched({rows})), rows, scores.size(1));
    };
    if (!record(result, fmt::format(".{}", k), static_cast<int64_t>(input.number("fence")),
                {.have_work = rows > 0}, call))
      break;
  }
  return result;
}

/// Task C3: one update per row of "gradients" [S, n], the first one numbered `step`. Returns
/// parameters and moments after the last.
Parcel run_adam(const Parcel& input) {
  const lab::AdamConfig config{.beta1 = static_cast<float>(input.number("beta1")),
                               .beta2 = static_cast<float>(input.number("beta2")),
                               .epsilon = static_cast<float>(input.number("epsilon"))};
  const Tensor gradients = input.tensor("gradients");
  const int64_t count = gradients.size(1);
  Parcel result;
  record(result, "", static_cast<int64_t>(input.number("fence")),
         {.count = gradients.size(0), .have_work = count > 0}, [&](Arrays& arrays) {
           float* w = arrays.add("parameters", input.tensor("parameters"));
           float* m = arrays.add("first_moment", input.tensor("first_moment"));
           float* v = arrays.add("second_moment", input.tensor("second_moment"));
           for (int64_t s = 0; s < gradients.size(0); ++s) {
             const float* g = arrays.add(fmt::format("gradients {}", s), gradients.rows(s, s + 1));
             launch_adam(config, static_cast<float>(input.number("learning_rate")),
                         static_cast<int64_t>(input.number("step")) + s, w, g, m, v, count);
           }
         });
  return result;
}

/// For the tests on a GPU: whether there is one, and why not. Exit code 77 means "skipped".
int tell_device() {
  const lab::AcceleratorSupport support = lab::accelerator_support();
  if (support.count > 0) {
    fmt::print("{}\n", lab::accelerator().name());
    return 0;
  }
  fmt::print("skipped: {}\n", support.problem);
  return 77;
}

}  // namespace
}  // namespace lab01cuda

int main(int argc, char** argv) {
  // Each array by itself, as long as its numbers: the emulation sees where it ends.
  setenv("LAB_CUDA_CACHE", "0", 1);
  if (argc == 2 && std::string_view(argv[1]) == "--device") return lab01cuda::tell_device();
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"rmsnorm", lab01cuda::run_rmsnorm},
                 {"softmax_cross_entropy", lab01cuda::run_softmax_cross_entropy},
                 {"adam", lab01cuda::run_adam}}});
}
