#include "common/tensor/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/tensor/accelerator.h"
#include "common/tensor/error.h"
#include "common/tensor/parallel.h"

namespace lab {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kHugePage = size_t{2} << 20;

int64_t product(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    require(extent >= 0, "tensor of shape {}: an extent is negative", to_string(shape));
    require(!__builtin_mul_overflow(count, extent, &count), "tensor of shape {} is too large",
            to_string(shape));
  }
  return count;
}

}  // namespace

struct Tensor::Storage {
  Storage(int64_t count, Device where, bool in_pinned_memory)
      : device(where), pinned(in_pinned_memory) {
    const size_t bytes = static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(float);
    if (device == Device::kCuda)
      data = static_cast<float*>(accelerator().allocate(bytes));
    else if (pinned)
      data = static_cast<float*>(accelerator().allocate_pinned(bytes));
    else
      data = allocate_on_host(bytes);
  }
  ~Storage() {
    if (device == Device::kCuda)
      accelerator().release(data);
    else if (pinned)
      accelerator().release_pinned(data);
    else
      std::free(data);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  static float* allocate_on_host(size_t bytes) {
    // Large blocks start at a huge page and ask for more of them: fewer misses in matrix products.
    const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    bytes = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, bytes);
    require(memory != nullptr, "out of memory: cannot allocate {} MiB for a tensor", bytes >> 20);
    if (alignment == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<float*>(memory);
  }

  float* data = nullptr;
  Device device;
  bool pinned;
};

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

Tensor Tensor::empty(Shape shape, Device device) {
  return with_memory(std::move(shape), device, /*pinned=*/false);
}

Tensor Tensor::pinned(Shape shape) {
  return with_memory(std::move(shape), Device::kCpu, /*pinned=*/true);
}

Tensor Tensor::with_memory(Shape shape, Device device, bool pinned) {
  require(!shape.empty(), "a tensor needs at least one dimension");
  const int64_t count = product(shape);
  require(count <= INT64_MAX / 8, "tensor of shape {} is too large", to_string(shape));
  Tensor tensor;
  tensor.storage_ = std::make_shared<Storage>(count, device, pinned);
  tensor.row_stride_ = shape.back();
  tensor.shape_ = std::move(shape);
  return tensor;
}

Tensor Tensor::zeros(Shape shape, Device device) {
  Tensor tensor = empty(std::move(shape), device);
  tensor.fill(0.0F);
  return tensor;
}

Tensor Tensor::from(std::span<const float> values, Shape shape) {
  Tensor tensor = empty(std::move(shape));
  require(static_cast<int64_t>(values.size()) == tensor.numel(),
          "{} values do not fill a tensor of shape {}", values.size(), to_string(tensor.shape()));
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

Tensor Tensor::from(std::initializer_list<float> values, Shape shape) {
  return from(std::span(values.begin(), values.size()), std::move(shape));
}

Device Tensor::device() const { return storage_ ? storage_->device : Device::kCpu; }

int64_t Tensor::size(int d) const {
  const int index = d < 0 ? d + dims() : d;
  require(index >= 0 && index < dims(), "dimension {} of a tensor of shape {}", d,
          to_string(shape_));
  return shape_[static_cast<size_t>(index)];
}

int64_t Tensor::numel() const { return shape_.empty() ? 0 : product(shape_); }

float* Tensor::data() const { return storage_ ? storage_->data + offset_ : nullptr; }

std::span<float> Tensor::values() const {
  require(is_contiguous(), "values() of a tensor that is not contiguous");
  require(device() == Device::kCpu,
          "values() of a tensor in the GPU's memory, which the processor cannot read: take a copy "
          "with to(Device::kCpu)");
  return {data(), static_cast<size_t>(numel())};
}

int64_t Tensor::row_count() const {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < shape_.size(); ++d) rows *= shape_[d];
  return shape_.empty() ? 0 : rows;
}

bool Tensor::is_contiguous() const {
  return shape_.empty() || row_stride_ == shape_.back() || row_count() <= 1;
}

Tensor Tensor::view(Shape shape) const {
  require(is_contiguous(), "view of a tensor of shape {} that is not contiguous",
          to_string(shape_));
  require(!shape.empty() && product(shape) == numel(),
          "view of shape {} as {}: the number of "
          "elements differs",
          to_string(shape_), to_string(shape));
  Tensor result = *this;
  result.row_stride_ = shape.back();
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::rows(int64_t first, int64_t last) const {
  require(dims() >= 1 && 0 <= first && first <= last && last <= size(0),
          "rows [{}, {}) of a tensor of shape {}", first, last, to_string(shape_));
  Tensor result = *this;
  if (dims() == 1) return columns(first, last);
  result.shape_[0] = 1;
  result.offset_ += first * result.row_count() * row_stride_;
  result.shape_[0] = last - first;
  return result;
}

Tensor Tensor::columns(int64_t first, int64_t last) const {
  require(dims() >= 1 && 0 <= first && first <= last && last <= size(-1),
          "columns [{}, {}) of a tensor of shape {}", first, last, to_string(shape_));
  Tensor result = *this;
  result.offset_ += first;
  result.shape_.back() = last - first;
  return result;
}

Tensor Tensor::clone() const {
  require(defined(), "clone of a tensor without memory");
  Tensor result = empty(shape_, device());
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(Device target) const {
  if (!defined() || device() == target) return *this;
  Tensor result = empty(shape_, target);
  result.copy_from(*this);
  return result;
}

void Tensor::fill(float value) const {
  if (device() == Device::kCuda) {
    if (numel() > 0) accelerator().fill(data(), row_count(), size(-1), row_stride_, value);
    return;
  }
  if (is_contiguous()) {
    float* first_element = data();
    parallel_blocks(numel(), 1 << 16, [&](int64_t first, int64_t last) {
      std::fill(first_element + first, first_element + last, value);
    });
    return;
  }
  for (int64_t r = 0; r < row_count(); ++r)
    std::fill_n(data() + r * row_stride_, shape_.back(), value);
}

void Tensor::copy_from(const Tensor& source) const {
  require(shape_ == source.shape_, "copy of a tensor of shape {} into one of shape {}",
          to_string(source.shape_), to_string(shape_));
  if (numel() == 0) return;
  const int64_t length = shape_.back();
  if (device() == Device::kCuda || source.device() == Device::kCuda) {
    const auto bytes = [](int64_t elements) {
      return static_cast<size_t>(elements) * sizeof(float);
    };
    const bool one_piece = is_contiguous() && source.is_contiguous();
    accelerator().copy({.to = data(),
                        .to_pitch = bytes(one_piece ? numel() : row_stride_),
                        .from = source.data(),
                        .from_pitch = bytes(one_piece ? numel() : source.row_stride_),
                        .width = bytes(one_piece ? numel() : length),
                        .rows = static_cast<size_t>(one_piece ? 1 : row_count())});
    return;
  }
  for (int64_t r = 0; r < row_count(); ++r)
    std::copy_n(source.data() + r * source.row_stride_, length, data() + r * row_stride_);
}

}  // namespace lab
