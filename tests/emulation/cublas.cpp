// The emulation of cuBLAS: matrix products, checked and put into streams.
#include <algorithm>

#include "check_range.h"
#include "cublas_context.h"
#include "cublas_v2.h"
#include "gemm.h"
#include "runtime.h"
#include "settings.h"
#include "streams.h"

namespace lab::emulation {
namespace {

/// One call, all products of its batch.
struct Product {
  int64_t m, n, k;
  float alpha;
  Matrix a;
  int64_t stride_a;
  Matrix b;
  int64_t stride_b;
  float beta;
  void* c;
  cudaDataType c_type;
  int64_t c_leading;
  int64_t stride_c;
  int64_t batches;
};

bool is_float_type(cudaDataType type) { return type == CUDA_R_32F || type == CUDA_R_16BF; }

cublasStatus_t check(const Product& p) {
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batches < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const int64_t a_rows = p.a.transposed ? p.k : p.m;
  const int64_t b_rows = p.b.transposed ? p.n : p.k;
  if (p.a.leading < std::max<int64_t>(1, a_rows) || p.b.leading < std::max<int64_t>(1, b_rows) ||
      p.c_leading < std::max<int64_t>(1, p.m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!is_float_type(p.a.type) || p.a.type != p.b.type || !is_float_type(p.c_type) ||
      (p.a.type == CUDA_R_32F && p.c_type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

/// From the first to the last element of a matrix with these many rows in memory.
void check_matrix(const char* name, const void* data, cudaDataType type, int64_t leading,
                  int64_t rows, int64_t columns, Access access) {
  if (rows == 0 || columns == 0) return;
  for (int64_t j = 0; j < columns; ++j) {
    const char* column =
        static_cast<const char*>(data) + static_cast<size_t>(j * leading) * size_of(type);
    check_range(name, column, static_cast<size_t>(rows) * size_of(type), access);
  }
}

void run_one(const Product& p, const Matrix& a, const Matrix& b, void* c) {
  if (p.k > 0) {
    check_matrix("matrix A of a matrix product", a.data, a.type, a.leading,
                 a.transposed ? p.k : p.m, a.transposed ? p.m : p.k, Access::kRead);
    check_matrix("matrix B of a matrix product", b.data, b.type, b.leading,
                 b.transposed ? p.n : p.k, b.transposed ? p.k : p.n, Access::kRead);
  }
  if (p.beta != 0) {
    check_matrix("matrix C of a matrix product", c, p.c_type, p.c_leading, p.m, p.n, Access::kRead);
  }
  check_matrix("matrix C of a matrix product", c, p.c_type, p.c_leading, p.m, p.n, Access::kWrite);
  multiply(p.m, p.n, p.k, p.alpha, a, b, p.beta, c, p.c_type, p.c_leading);
}

void run(const Product& p) {
  ++counts().launches;
  const auto moved = [](const void* data, int64_t elements, cudaDataType type) {
    return static_cast<const char*>(data) + elements * static_cast<int64_t>(size_of(type));
  };
  for (int64_t i = 0; i < p.batches; ++i) {
    Matrix a = p.a;
    Matrix b = p.b;
    a.data = moved(a.data, i * p.stride_a, a.type);
    b.data = moved(b.data, i * p.stride_b, b.type);
    run_one(p, a, b,
            static_cast<char*>(p.c) + i * p.stride_c * static_cast<int64_t>(size_of(p.c_type)));
  }
}

cublasStatus_t multiply_in_stream(cublasHandle_t handle, const Product& product) {
  const auto lock = lock_runtime();
  throw_kept_error();
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (const cublasStatus_t status = check(product); status != CUBLAS_STATUS_SUCCESS) return status;
  if (product.m == 0 || product.n == 0 || product.batches == 0) return CUBLAS_STATUS_SUCCESS;
  CUstream_st* stream = find_stream(handle->stream);
  if (!stream) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (stream->capture && !settings().records_products) {
    stream->capture->valid = false;
    return CUBLAS_STATUS_INTERNAL_ERROR;
  }
  const cudaError_t error = noted(enqueue(stream, [product] { run(product); }));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

bool is_float_arithmetic(cublasComputeType_t type) {
  switch (type) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return true;
  }
  return false;
}

}  // namespace
}  // namespace lab::emulation

using namespace lab::emulation;

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, long long stride_a, const void* b,
                                          cudaDataType b_type, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long stride_c, int batch_count,
                                          cublasComputeType_t compute_type, cublasGemmAlgo_t) {
  if (!is_float_arithmetic(compute_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  const Matrix left{a, a_type, lda, transa != CUBLAS_OP_N};
  const Matrix right{b, b_type, ldb, transb != CUBLAS_OP_N};
  return multiply_in_stream(
      handle, {m, n, k, *static_cast<const float*>(alpha), left, stride_a, right, stride_b,
               *static_cast<const float*>(beta), c, c_type, ldc, stride_c, batch_count});
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute_type,
                            cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b,
                                    b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, compute_type,
                                    algorithm);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float* alpha, const float* a, int lda,
                                         long long stride_a, const float* b, int ldb,
                                         long long stride_b, const float* beta, float* c, int ldc,
                                         long long stride_c, int batch_count) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a, CUDA_R_32F, lda,
                                    stride_a, b, CUDA_R_32F, ldb, stride_b, beta, c, CUDA_R_32F,
                                    ldc, stride_c, batch_count, CUBLAS_COMPUTE_32F,
                                    CUBLAS_GEMM_DEFAULT);
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const float* alpha,
                           const float* a, int lda, const float* b, int ldb, const float* beta,
                           float* c, int ldc) {
  return cublasSgemmStridedBatched(handle, transa, transb, m, n, k, alpha, a, lda, 0, b, ldb, 0,
                                   beta, c, ldc, 0, 1);
}
