// Tensor: a block of numbers with a shape; the only array type of the workbook. The numbers are
// float32, except that what lies between the operations of a layer may be bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lab {

/// Where a tensor's memory is.
enum class Device { kCpu, kCuda };

/// The type of a tensor's elements.
enum class ElementType {
  kFloat32,
  kBfloat16,  // float32 without its lower half: see Bfloat16
};

/// Extents per dimension, slowest first, e.g. {B, T, C}.
using Shape = std::vector<int64_t>;

/// "[3, 256, 288]".
std::string to_string(const Shape& shape);

/// Row-major, on one device. A Tensor is a handle, as in PyTorch: copying it copies no
/// numbers, and views (`view`, `rows`, `columns`) share the memory they were taken from and keep it
/// alive. Owned memory starts at a multiple of 256 bytes.
///
/// Within a row (the last dimension) elements are adjacent. Rows may be further apart than their
/// length, as in what `columns` returns; `row_stride` is the distance. Methods that need the
/// numbers in one piece say so.
class Tensor {
 public:
  /// No shape, no memory; `defined()` is false.
  Tensor() = default;

  /// Uninitialised memory. Extents may be 0. Throws Error if memory runs out, and for Device::kCuda
  /// without a GPU.
  static Tensor empty(Shape shape, Device device = Device::kCpu,
                      ElementType type = ElementType::kFloat32);
  static Tensor zeros(Shape shape, Device device = Device::kCpu);
  /// A CPU tensor in pinned memory: copies between it and the GPU run at full speed while the host
  /// goes on, so synchronise before using it (see Accelerator). Uninitialised.
  static Tensor pinned(Shape shape);
  /// Copies `values` (row-major, as many as the shape holds) into a new CPU tensor.
  static Tensor from(std::span<const float> values, Shape shape);
  static Tensor from(std::initializer_list<float> values, Shape shape);

  bool defined() const { return storage_ != nullptr; }
  Device device() const;
  ElementType type() const;
  const Shape& shape() const { return shape_; }
  int dims() const { return static_cast<int>(shape_.size()); }
  /// Extent of dimension `d`; negative counts from the end (-1: row length).
  int64_t size(int d) const;
  /// Number of elements.
  int64_t numel() const;
  size_t bytes() const { return static_cast<size_t>(numel()) * element_size(); }
  /// Bytes of an element.
  size_t element_size() const { return type() == ElementType::kFloat32 ? 4 : 2; }

  /// First element. On the CPU it can be dereferenced. A const Tensor is a const handle; the
  /// numbers can still be changed through it. The elements must be float32.
  float* data() const;
  /// First element, of either type.
  void* address() const;
  /// All elements; the tensor must be contiguous and on the CPU.
  std::span<float> values() const;

  /// The tensor as a matrix of rows: product of all extents but the last, and the distance from one
  /// row to the next in elements (equal to size(-1) when contiguous).
  int64_t row_count() const;
  int64_t row_stride() const { return row_stride_; }
  bool is_contiguous() const;

  /// Same numbers under another shape with equally many elements; must be contiguous.
  Tensor view(Shape shape) const;
  /// Entries [first, last) of the first dimension: for a matrix, a block of rows.
  Tensor rows(int64_t first, int64_t last) const;
  /// Entries [first, last) of the last dimension: for a matrix, a block of columns. Not contiguous.
  Tensor columns(int64_t first, int64_t last) const;

  /// A contiguous tensor of its own with the same numbers, on the same device.
  Tensor clone() const;
  /// The same numbers on `device`: this tensor itself if it is there already, else a contiguous
  /// copy in float32.
  Tensor to(Device device) const;
  /// Sets every element; the type must be float32.
  void fill(float value) const;
  /// Copies the numbers of `source`, which must have the same shape, into this tensor; from one
  /// device or type of element to the other too (to bfloat16: rounded to nearest).
  void copy_from(const Tensor& source) const;

 private:
  struct Storage;
  static Tensor with_memory(Shape shape, Device device, ElementType type, bool pinned);
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // of the first element, in elements
  int64_t row_stride_ = 0;
  Shape shape_;
};

}  // namespace lab
