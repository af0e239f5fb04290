// Every call of CUDA and cuBLAS goes through check(): a failure becomes an Error that says which
// call, for what, why, and what to do about it.
//
// CUDA reports the failure of a kernel late: by whichever call comes next. In that case the message
// says so.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <string>
#include <utility>

namespace lab::cuda {

/// One or two sentences: CUDA's own words, and the remedy if one is known.
std::string explain(cudaError_t status);

/// "13.0" for 13000, as CUDA counts versions.
std::string version_text(int version);

[[noreturn]] void fail_call(cudaError_t status, const char* call, const std::string& purpose);
[[noreturn]] void fail_call(cublasStatus_t status, const char* call, const std::string& purpose);

/// Throws Error unless the call succeeded. `purpose` says what it was for: "copying {} to the GPU".
template <typename... Args>
void check(cudaError_t status, const char* call, fmt::format_string<Args...> purpose,
           Args&&... args) {
  if (status != cudaSuccess)
    fail_call(status, call, fmt::format(purpose, std::forward<Args>(args)...));
}
template <typename... Args>
void check(cublasStatus_t status, const char* call, fmt::format_string<Args...> purpose,
           Args&&... args) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail_call(status, call, fmt::format(purpose, std::forward<Args>(args)...));
}

}  // namespace lab::cuda
