// The GPU of this process, as the rest of the workbook sees it: memory, copies, and a stream of
// work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace lab {

class Kernels;  // common/ops/kernels.h
class Tensor;

/// The type to which matrix products round their inputs. On a GPU the shorter ones run on tensor
/// cores, from compute capability 8.0 on; processors with instructions for it have bfloat16 (see
/// ops/precision.h). With bfloat16, tensors between the operations of a layer are bfloat16 too.
/// Weights, their gradients, the optimizer's state, the residual stream and all sums are always
/// float32.
enum class Precision {
  kFloat32,   // 23 bits of mantissa
  kTf32,      // 10, on GPUs only
  kBfloat16,  // 7
};

/// Rows of bytes in two places. On either side, rows may be further apart than they are wide.
struct MemoryCopy {
  void* to = nullptr;
  size_t to_pitch = 0;  // bytes from one row to the next
  const void* from = nullptr;
  size_t from_pitch = 0;
  size_t width = 0;  // bytes in a row
  size_t rows = 1;
};

/// Recorded work that can be repeated with one call to the driver instead of hundreds. It reads and
/// writes the same memory each time.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  virtual void repeat() = 0;
};

/// One GPU. Work runs in the order in which it was launched (one stream), while the host goes on;
/// `synchronize` waits for it. Every method throws Error when the GPU reports a failure, possibly
/// that of an earlier call.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// Which one, among those that the process sees.
  virtual int index() const = 0;
  /// "NVIDIA H200".
  virtual std::string name() const = 0;
  virtual size_t free_bytes() const = 0;

  /// GPU memory that starts at a multiple of 256 bytes; it comes from a pool and returns to it, so
  /// that a training step allocates nothing. Throws Error when the GPU does not have enough left.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;

  /// Pinned host memory: the GPU reads and writes it at full speed, while the host goes on. It may
  /// be freed while copies are still running.
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
  /// Waits until all launched work is done.
  virtual void synchronize() = 0;

  /// Calls `work`, which launches kernels and copies within GPU memory and must not wait for them;
  /// they are recorded instead of run. What `work` allocates stays reserved for the recording.
  virtual std::unique_ptr<RecordedWork> record(const std::function<void()>& work) = 0;

  /// Initially kFloat32. Recorded work keeps the precision with which it was recorded. Throws Error
  /// for a precision that the GPU does not support.
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
/// Defined once per program: by the CUDA backend, by its emulation, or by the substitute that is
/// linked where no CUDA toolkit was found.
AcceleratorSupport accelerator_support();

/// Chooses the GPU of this process, before its first use. Throws Error if there is no GPU of that
/// index, or if the process already uses another one.
void use_accelerator(int index);

/// The GPU of this process; GPU 0 unless use_accelerator has chosen another. Throws Error if there
/// is none.
Accelerator& accelerator();

namespace detail {
/// Defined where accelerator_support is.
std::unique_ptr<Accelerator> open_accelerator(int index);
}  // namespace detail

}  // namespace lab
