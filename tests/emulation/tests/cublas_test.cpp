// Matrix products: results against plain sums in double, checks of arguments and of memory.
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <cmath>

#include "device_array.h"
#include "kernel_test.h"

namespace lab::emulation {
namespace {

class Cublas : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override {
    cublasDestroy(handle);
    KernelTest::TearDown();
  }

  cublasHandle_t handle = nullptr;
  const float one = 1;
  const float zero = 0;
  const float half = 0.5F;
};

/// Small whole numbers: products and sums of them are exact.
template <typename T>
std::vector<T> numbers(int count, int salt) {
  std::vector<T> result;
  for (int i = 0; i < count; ++i) result.push_back(static_cast<float>((i * 7 + salt) % 5 - 2));
  return result;
}

TEST_F(Cublas, ProductsOfAllShapes) {
  const int m = 3, n = 4, k = 5, ld = 6;
  const auto a = numbers<float>(ld * ld, 1);
  const auto b = numbers<float>(ld * ld, 2);
  const auto c = numbers<float>(ld * ld, 3);
  for (const auto ta : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const auto tb : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      DeviceArray<float> da(a), db(b), dc(c);
      ASSERT_EQ(cublasSgemm(handle, ta, tb, m, n, k, &one, da.data(), ld, db.data(), ld, &half,
                            dc.data(), ld),
                CUBLAS_STATUS_SUCCESS);
      const std::vector<float> result = dc.values();
      for (int i = 0; i < ld; ++i) {
        for (int j = 0; j < ld; ++j) {
          const auto at = [&](int r, int s) { return static_cast<size_t>(r + s * ld); };
          float expected = c[at(i, j)];
          if (i < m && j < n) {
            expected *= half;
            for (int p = 0; p < k; ++p) {
              expected += (ta == CUBLAS_OP_N ? a[at(i, p)] : a[at(p, i)]) *
                          (tb == CUBLAS_OP_N ? b[at(p, j)] : b[at(j, p)]);
            }
          }
          EXPECT_EQ(result[at(i, j)], expected) << i << " " << j;
        }
      }
    }
  }
}

TEST_F(Cublas, BatchesOfBfloat16) {
  DeviceArray<__nv_bfloat16> a(numbers<__nv_bfloat16>(8, 1));
  DeviceArray<__nv_bfloat16> b(numbers<__nv_bfloat16>(8, 2));
  DeviceArray<float> c(8);  // with beta 0 it is not read
  ASSERT_EQ(
      cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a.data(),
                                 CUDA_R_16BF, 2, 4, b.data(), CUDA_R_16BF, 2, 4, &zero, c.data(),
                                 CUDA_R_32F, 2, 4, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      CUBLAS_STATUS_SUCCESS);
  const auto x = numbers<float>(8, 1);
  const auto y = numbers<float>(8, 2);
  const std::vector<float> z = c.values();
  for (size_t batch = 0; batch < 8; batch += 4) {
    EXPECT_EQ(z[batch], x[batch] * y[batch] + x[batch + 2] * y[batch + 1]);
    EXPECT_EQ(z[batch + 3], x[batch + 1] * y[batch + 2] + x[batch + 3] * y[batch + 3]);
  }
}

TEST_F(Cublas, RefusesWhatCublasRefuses) {
  DeviceArray<float> x(std::vector<float>(64));
  const auto gemm = [&](int m, int lda, int ldb, int ldc) {
    return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, 4, 2, &one, x.data(), lda, x.data(),
                       ldb, &zero, x.data() + 32, ldc);
  };
  EXPECT_EQ(gemm(3, 3, 4, 3), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(gemm(3, 2, 4, 3), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(3, 3, 3, 3), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(3, 3, 4, 2), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(-1, 3, 4, 3), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(Cublas, ChecksMemory) {
  DeviceArray<float> a(std::vector<float>(4, 1.0F));
  DeviceArray<float> unwritten(4);
  DeviceArray<float> c(4);
  const auto error_of = [&](float* left, int m) {
    return kernel_error_of([&] {
      cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, 2, 2, &one, left, m, a.data(), 2, &zero,
                  c.data(), m);
      cudaDeviceSynchronize();
    });
  };
  EXPECT_EQ(error_of(a.data(), 2), "");
  expect_parts(error_of(unwritten.data(), 2), {"matrix A", "never written"});
  expect_parts(error_of(a.data(), 3), {"matrix A", "not all in one allocation"});
}

TEST_F(Cublas, WorkspaceMustBeAligned) {
  DeviceArray<float> workspace(256);
  EXPECT_EQ(cublasSetWorkspace(handle, workspace.data(), 1024), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetWorkspace(handle, workspace.data() + 1, 512), CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace lab::emulation
