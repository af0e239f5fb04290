// What a handle of cuBLAS points to.
#pragma once

#include "cublas_v2.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t mode = CUBLAS_DEFAULT_MATH;
};
