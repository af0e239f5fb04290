// cudaLaunchKernelEx: what a launch keeps until the stream runs it.
#pragma once

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "emulated/runtime_api.h"

namespace lab::emulation {

/// A kernel with copies of its arguments, and the shape of its launch.
class KernelCall {
 public:
  struct Argument {
    const void* address;
    size_t size;
  };

  virtual ~KernelCall() = default;
  /// Runs the kernel as one thread.
  virtual void run_thread() = 0;

  const void* function = nullptr;
  dim3 grid;
  dim3 block;
  size_t dynamic_shared_bytes = 0;
  std::vector<Argument> arguments;
  /// Where the arguments lie: a kernel may read them.
  const void* begin = nullptr;
  const void* end = nullptr;
};

template <typename... Parameters>
class TypedKernelCall final : public KernelCall {
 public:
  template <typename... Given>
  explicit TypedKernelCall(void (*kernel)(Parameters...), Given&&... given)
      : kernel_(kernel), values_(std::forward<Given>(given)...) {
    function = reinterpret_cast<const void*>(kernel);
    std::apply(
        [this](const auto&... value) {
          (arguments.push_back({&value, sizeof(value)}), ...);
        },
        values_);
    begin = this;
    end = this + 1;
  }

  void run_thread() override { std::apply(kernel_, values_); }

 private:
  void (*kernel_)(Parameters...);
  std::tuple<std::remove_const_t<Parameters>...> values_;
};

/// Checks the configuration as CUDA does, and puts the call into its stream.
cudaError_t launch(const cudaLaunchConfig_t* config, std::unique_ptr<KernelCall> call);

}  // namespace lab::emulation

template <typename... Parameters, typename... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Given&&... given) {
  return lab::emulation::launch(config,
                                std::make_unique<lab::emulation::TypedKernelCall<Parameters...>>(
                                    kernel, std::forward<Given>(given)...));
}
