// Opening a GPU.
#include <cstdlib>
#include <string_view>

#include "common/error.h"
#include "common/gpu/cuda/check.h"
#include "common/gpu/cuda/context.h"

namespace lab::cuda {
namespace {

int attribute_of(int index, cudaDeviceAttr attribute) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, attribute, index), "cudaDeviceGetAttribute",
        "looking at GPU {}", index);
  return value;
}

__global__ void empty_kernel() {}

/// A program holds the same code of all kernels (except those for tensor cores); without code for
/// this GPU, the first launch would fail long after the start, and not say why.
void require_code(int index) {
  cudaFuncAttributes unused{};
  check(cudaFuncGetAttributes(&unused, empty_kernel), "cudaFuncGetAttributes",
        "looking for code for GPU {}, of compute capability {}.{}", index,
        attribute_of(index, cudaDevAttrComputeCapabilityMajor),
        attribute_of(index, cudaDevAttrComputeCapabilityMinor));
}

/// What NVIDIA recommends for cuBLAS: 32 MiB from Hopper on, 4 MiB before.
size_t workspace_bytes(int index) {
  return size_t{attribute_of(index, cudaDevAttrComputeCapabilityMajor) >= 9 ? 32U : 4U} << 20;
}

/// LAB_CUDA_CACHE=0 is for memory checkers.
CachingAllocator::Keep keep_from_environment() {
  const char* value = std::getenv("LAB_CUDA_CACHE");
  return value != nullptr && std::string_view(value) == "0" ? CachingAllocator::Keep::kNone
                                                            : CachingAllocator::Keep::kReleased;
}

}  // namespace

Context::Context(int index, CachingAllocator::Keep keep) : index_(index), memory_(keep) {}

// The destructor closes what is open if this throws, because the other constructor has returned.
Context::Context(int index) : Context(index, keep_from_environment()) {
  activate();
  require_code(index);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
        "opening GPU {}", index);
  check(cublasCreate(&blas_), "cublasCreate", "opening cuBLAS on GPU {}", index);
  check(cublasSetStream(blas_, stream_), "cublasSetStream", "opening cuBLAS");
  const size_t bytes = workspace_bytes(index);
  blas_workspace_ = memory_.allocate(bytes);
  check(cublasSetWorkspace(blas_, blas_workspace_, bytes), "cublasSetWorkspace", "opening cuBLAS");
  set_precision(Precision::kFloat32);
  multiprocessors_ = attribute_of(index, cudaDevAttrMultiProcessorCount);
}

Context::~Context() {
  if (stream_ != nullptr) static_cast<void>(cudaStreamSynchronize(stream_));
  if (blas_ != nullptr) static_cast<void>(cublasDestroy(blas_));
  memory_.release(blas_workspace_);
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

bool Context::supports(Precision precision) const {
  return precision != Precision::kBfloat16 ||
         attribute_of(index_, cudaDevAttrComputeCapabilityMajor) >= 8;
}

void Context::set_precision(Precision precision) {
  require(supports(precision),
          "bfloat16 needs a GPU of compute capability 8.0 (Ampere) or newer, and GPU {} has {}.{}: "
          "use --precision float32",
          index_, attribute_of(index_, cudaDevAttrComputeCapabilityMajor),
          attribute_of(index_, cudaDevAttrComputeCapabilityMinor));
  precision_ = precision;
  // Without the second flag, parts of a sum may be added in the type of the result.
  const int mode =
      (precision == Precision::kTf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH) |
      CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  check(cublasSetMathMode(blas_, static_cast<cublasMath_t>(mode)), "cublasSetMathMode",
        "choosing how matrix products round");
}

void Context::activate() const {
  check(cudaSetDevice(index_), "cudaSetDevice", "choosing GPU {}", index_);
}

}  // namespace lab::cuda
