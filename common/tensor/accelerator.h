// The GPU of this process, as the rest of the workbook sees it: memory, copies, and an order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lab {

class Kernels;  // common/ops/kernels.h
class Tensor;

/// To what matrix products round their inputs; the shorter ones run on tensor cores, from compute
/// capability 8.0 on. With bfloat16, what a layer keeps between its operations is bfloat16 too.
/// Weights, gradients of weights, the optimizer's state, what layers add to (the residual stream)
/// and all sums are float32 in any case.
enum class Precision {
  kFloat32,   // 23 bits of mantissa
  kTf32,      // 10
  kBfloat16,  // 7
};

/// Rows of bytes in two places. On both sides rows may lie further apart than they are wide.
struct MemoryCopy {
  void* to = nullptr;
  size_t to_pitch = 0;  // bytes from one row to the next
  const void* from = nullptr;
  size_t from_pitch = 0;
  size_t width = 0;  // bytes in a row
  size_t rows = 1;
};

/// Work that was recorded once and can be repeated with one call to the driver instead of hundreds.
/// It reads and writes the same memory each time.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void repeat() = 0;
};

/// One GPU. All that is asked of it happens in the order in which it was asked for (one stream),
/// while the host goes on; `synchronize` waits for it. Every method throws Error when the GPU
/// reports a failure, possibly that of an earlier call.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// Which one, among those that the process sees.
  virtual int index() const = 0;
  /// "NVIDIA H200".
  virtual std::string name() const = 0;
  virtual size_t free_bytes() const = 0;

  /// GPU memory that starts at a multiple of 256 bytes; taken from and given back to a pool, so
  /// that a training step allocates nothing. Throws Error when the GPU has not as much left.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;

  /// Host memory that the GPU reads and writes at full speed, and while the host goes on (pinned).
  /// It may be given back while copies are still under way.
  virtual void* allocate_pinned(size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;

  /// Copies between two places of which at least one is GPU memory. When it returns, ordinary host
  /// memory has been read or written; pinned memory only after `synchronize`.
  virtual void copy(const MemoryCopy& copy) = 0;
  /// Sets `rows` rows of `columns` floats, `row_stride` apart.
  virtual void fill(float* data, int64_t rows, int64_t columns, int64_t row_stride,
                    float value) = 0;
  /// Copies the numbers of one tensor in GPU memory into another, of the same shape and another
  /// type of element.
  virtual void convert(const Tensor& from, const Tensor& to) = 0;
  /// Waits until all that was asked for has happened.
  virtual void synchronize() = 0;

  /// Calls `work`, which asks for kernels and copies within GPU memory and must not wait for them;
  /// they do not run, but are recorded. What `work` allocates stays reserved for the recording.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) = 0;

  /// At first kFloat32. What was recorded before keeps the precision that it was recorded with.
  /// Throws Error for one that the GPU does not support.
  virtual void set_precision(Precision precision) = 0;
  virtual bool supports(Precision precision) const = 0;
  virtual Precision precision() const = 0;

  virtual const Kernels& kernels() const = 0;
};

/// What this build and this machine offer.
struct AcceleratorSupport {
  int count = 0;        // GPUs that can be used
  std::string problem;  // why there is none, and what to do about it; empty if count > 0
};
AcceleratorSupport accelerator_support();

/// Chooses the GPU of this process, before its first use. Throws Error when there is no GPU of that
/// index, or the process uses another one already.
void use_accelerator(int index);

/// The GPU of this process; GPU 0 unless use_accelerator has chosen. Throws Error when there is
/// none.
Accelerator& accelerator();

namespace detail {
/// Defined once per program: by the CUDA backend, by its emulation, or by the file that stands in
/// for both where no CUDA toolkit was found.
AcceleratorSupport find_accelerators();
std::unique_ptr<Accelerator> open_accelerator(int index);
}  // namespace detail

}  // namespace lab
