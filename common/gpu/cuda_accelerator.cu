// The Accelerator of a GPU, and how GPUs are found.
#include "common/error.h"
#include "common/gpu/cuda/byte_count.h"
#include "common/gpu/cuda/check.h"
#include "common/gpu/cuda/recorded_graph.h"
#include "common/gpu/cuda_accelerator.h"
#include "common/gpu/kernels/elementwise.h"

namespace lab {
namespace cuda {
namespace {

enum class Place { kGpu, kPinned, kOrdinary };

Place place_of(const void* memory) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes",
        "copying from or to the GPU");
  switch (attributes.type) {
    case cudaMemoryTypeDevice:
    case cudaMemoryTypeManaged:
      return Place::kGpu;
    case cudaMemoryTypeHost:
      return Place::kPinned;
    default:
      return Place::kOrdinary;
  }
}

/// A copy that the GPU makes without the CPU.
void copy_directly(const MemoryCopy& copy, cudaStream_t stream) {
  const size_t bytes = copy.width * copy.rows;
  const bool in_one_piece = copy.to_pitch == copy.width && copy.from_pitch == copy.width;
  if (in_one_piece || copy.rows == 1) {
    check(cudaMemcpyAsync(copy.to, copy.from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync",
          "copying {} from or to the GPU", byte_count(bytes));
  } else {
    check(cudaMemcpy2DAsync(copy.to, copy.to_pitch, copy.from, copy.from_pitch, copy.width,
                            copy.rows, cudaMemcpyDefault, stream),
          "cudaMemcpy2DAsync", "copying {} from or to the GPU", byte_count(bytes));
  }
}

std::string device_name(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", "looking at GPU {}",
        index);
  return properties.name;
}

}  // namespace

CudaAccelerator::CudaAccelerator(int index)
    : context_(index),
      staged_(context_.stream()),
      kernels_(make_kernels(context_)),
      name_(device_name(index)) {}

size_t CudaAccelerator::free_bytes() const {
  context_.activate();
  size_t free = 0;
  size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", "asking how much GPU memory is free");
  return free + context_.memory().bytes_kept();
}

void* CudaAccelerator::allocate(size_t bytes) {
  context_.activate();
  return context_.memory().allocate(bytes);
}

void CudaAccelerator::release(void* memory) noexcept { context_.memory().release(memory); }

void* CudaAccelerator::allocate_pinned(size_t bytes) {
  context_.activate();
  return pinned_.allocate(bytes);
}

void CudaAccelerator::release_pinned(void* memory) noexcept { pinned_.release(memory); }

void CudaAccelerator::copy(const MemoryCopy& copy) {
  if (copy.width == 0 || copy.rows == 0) return;
  context_.activate();
  const Place from = place_of(copy.from);
  const Place to = place_of(copy.to);
  require(from == Place::kGpu || to == Place::kGpu,
          "a copy on the GPU's stream between two places in host memory");
  if (from != Place::kOrdinary && to != Place::kOrdinary) {
    copy_directly(copy, context_.stream());
    return;
  }
  require(!context_.recording(),
          "recorded work must not copy ordinary host memory: copy before it, or use pinned memory");
  if (to == Place::kGpu)
    staged_.to_gpu(copy);
  else
    staged_.from_gpu(copy);
}

void CudaAccelerator::fill(float* data, int64_t rows, int64_t columns, int64_t row_stride,
                           float value) {
  context_.activate();
  cuda::fill(context_, {data, rows, columns, row_stride}, value);
}

void CudaAccelerator::convert(const Tensor& from, const Tensor& to) {
  context_.activate();
  if (to.type() == ElementType::kBfloat16)
    cuda::convert(context_, matrix(from), matrix<__nv_bfloat16>(to));
  else
    cuda::convert(context_, matrix<__nv_bfloat16>(from), matrix(to));
}

void CudaAccelerator::synchronize() {
  require(!context_.recording(), "recorded work must not wait for the GPU: it does not run yet");
  context_.activate();
  check(cudaStreamSynchronize(context_.stream()), "cudaStreamSynchronize", "waiting for the GPU");
  pinned_.gpu_is_idle();
}

void CudaAccelerator::set_precision(Precision precision) { context_.set_precision(precision); }

std::unique_ptr<RecordedWork> CudaAccelerator::record(const std::function<void()>& work) {
  context_.activate();
  return record_graph(context_, work);
}

const Kernels& CudaAccelerator::kernels() const {
  context_.activate();
  return *kernels_;
}

Context& current_context() { return cuda_accelerator().context(); }

CudaAccelerator& cuda_accelerator() { return dynamic_cast<CudaAccelerator&>(accelerator()); }

}  // namespace cuda

AcceleratorSupport accelerator_support() {
  const auto none = [](const std::string& reason) -> AcceleratorSupport {
    return {.count = 0, .problem = "no GPU can be used: " + reason};
  };
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    return none(cuda::explain(status == cudaSuccess ? cudaErrorNoDevice : status));
  }
  try {
    static_cast<void>(cublasGetStatusString(CUBLAS_STATUS_SUCCESS));  // loads cuBLAS
  } catch (const Error& error) {
    return none(error.what());
  }
  return {.count = count, .problem = ""};
}

std::unique_ptr<Accelerator> detail::open_accelerator(int index) {
  return std::make_unique<cuda::CudaAccelerator>(index);
}

}  // namespace lab
