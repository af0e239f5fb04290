// The functions of cuBLAS that the workbook calls (see library.h).
#include "common/gpu/on_demand/library.h"

#pragma GCC visibility push(hidden)  // or cuBLAS might call these instead of its own
#include <cublas_v2.h>
#pragma GCC visibility pop
#include <fmt/format.h>

namespace {

template <typename Result = cublasStatus_t, typename... Args>
Result pass_on(const char* function, Args... args) {
  static const lab::on_demand::Library library(
      fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR), LAB_CUBLAS_FOLDER,
      "install the CUDA Toolkit, or name the folder of this library in LD_LIBRARY_PATH, or use "
      "--device cpu");
  return library.call<Result>(function, args...);
}

}  // namespace

// cublas_v2.h renames some of them: __func__ is the name in the library.

cublasStatus_t cublasCreate(cublasHandle_t* handle) { return pass_on(__func__, handle); }

cublasStatus_t cublasDestroy(cublasHandle_t handle) { return pass_on(__func__, handle); }

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  return pass_on(__func__, handle, stream);
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  return pass_on(__func__, handle, workspace, bytes);
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return pass_on(__func__, handle, mode);
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return pass_on<const char*>(__func__, status);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c,
                            cudaDataType c_type, int ldc, cublasComputeType_t compute_type,
                            cublasGemmAlgo_t algorithm) {
  return pass_on(__func__, handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb,
                 beta, c, c_type, ldc, compute_type, algorithm);
}
