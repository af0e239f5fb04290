// Tiles: the building blocks of the attention kernels.
//
// A block of 128 threads works on tiles in shared memory: some rows of Q, K, V or dY of one head.
// Its threads form a grid of 16 x 8 (y, x). Of a product with R rows and C columns, thread (y, x)
// keeps the elements of rows y, y+16, y+32, ... and columns x, x+8, x+16, ... in registers. So a
// warp holds whole rows: 4 of them in each group of 16. Each number read from shared memory is used
// in several products, so that the multipliers are the limit, not shared memory.
//
// Rows are kHeadDim + 4 floats apart: the 4 (or 8) rows that the lanes of a warp read at the same
// time then begin in different banks, and 16-byte accesses stay aligned.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/gpu/cuda/dynamic_shared.h"
#include "common/gpu/cuda/launch.h"
#include "common/gpu/kernels/attention_heads.h"
#include "common/gpu/kernels/matrix.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {

constexpr int kTileX = 8;
constexpr int kTileY = 16;
constexpr int kTileThreads = kTileX * kTileY;
constexpr int kPad = 4;

__device__ inline int tile_x() { return static_cast<int>(threadIdx.x) % kTileX; }
__device__ inline int tile_y() { return static_cast<int>(threadIdx.x) / kTileX; }

/// Copies rows [first, first + kRows) of a head into a tile. Whatever is outside is 0.
template <int kRows, int kHeadDim>
__device__ void load_tile(float* tile, const HeadOf<float>& head, int64_t first) {
  constexpr int kPacks = kHeadDim / 4;
#pragma unroll
  for (int p = static_cast<int>(threadIdx.x); p < kRows * kPacks; p += kTileThreads) {
    const int r = p / kPacks;
    const int c = p % kPacks * 4;
    Pack<4> pack{};
    if (first + r < head.length) {
      const float* row = head.row(first + r);
      if (head.packs) {
        if (c < head.dim) pack = load<4>(row + c);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (c + i < head.dim) pack.v[i] = load<1>(row + c + i).v[0];
      }
    }
    store(tile + r * (kHeadDim + kPad) + c, pack);
  }
}

/// product[i][j] = row y+16i of tile a times row x+8j of tile b: a part of A B^T. kUnroll steps are
/// in flight at the same time: more hide the latency of shared memory, and take more registers.
template <int kHeadDim, int kUnroll, int kI, int kJ>
__device__ void multiply(const float* a, const float* b, float (&product)[kI][kJ]) {
  constexpr int kPitch = kHeadDim + kPad;
  a += tile_y() * kPitch;
  b += tile_x() * kPitch;
#pragma unroll
  for (int i = 0; i < kI; ++i)
#pragma unroll
    for (int j = 0; j < kJ; ++j) product[i][j] = 0.0F;
#pragma unroll kUnroll
  for (int d = 0; d < kHeadDim; d += 4) {
    Pack<4> left[kI];
#pragma unroll
    for (int i = 0; i < kI; ++i) left[i] = load<4>(a + i * kTileY * kPitch + d);
#pragma unroll
    for (int j = 0; j < kJ; ++j) {
      const Pack<4> right = load<4>(b + j * kTileX * kPitch + d);
#pragma unroll
      for (int i = 0; i < kI; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) product[i][j] += left[i].v[e] * right.v[e];
    }
  }
}

/// The columns of a head that a thread keeps: packs of kWidth, 8 * kWidth apart.
template <int kHeadDim>
struct HeadColumns {
  static constexpr int kCount = kHeadDim / kTileX;
  static constexpr int kWidth = kCount % 4 == 0 ? 4 : 2;
  static constexpr int kPacks = kCount / kWidth;
  __device__ static int first(int pack) { return (pack * kTileX + tile_x()) * kWidth; }
};

/// sum[i] += row y+16i of `weights` (kInner columns) times tile b (kInner rows): a part of W B.
template <int kHeadDim, int kInner, int kI, int kN>
__device__ void accumulate(const float* weights, const float* b, float (&sum)[kI][kN]) {
  using Columns = HeadColumns<kHeadDim>;
  constexpr int kWeightPitch = kInner + kPad;
  weights += tile_y() * kWeightPitch;
#pragma unroll 2
  for (int k = 0; k < kInner; k += 4) {
    Pack<4> left[kI];
#pragma unroll
    for (int i = 0; i < kI; ++i) left[i] = load<4>(weights + i * kTileY * kWeightPitch + k);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int p = 0; p < Columns::kPacks; ++p) {
        const auto right =
            load<Columns::kWidth>(b + (k + e) * (kHeadDim + kPad) + Columns::first(p));
#pragma unroll
        for (int i = 0; i < kI; ++i)
#pragma unroll
          for (int w = 0; w < Columns::kWidth; ++w)
            sum[i][p * Columns::kWidth + w] += left[i].v[e] * right.v[w];
      }
    }
  }
}

/// Writes a product to shared memory, where accumulate() reads it. A warp writes and reads only its
/// own rows: a barrier of the warp is enough.
template <int kI, int kJ>
__device__ void share_weights(float* weights, const float (&product)[kI][kJ]) {
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kI; ++i)
#pragma unroll
    for (int j = 0; j < kJ; ++j)
      weights[(tile_y() + i * kTileY) * (kJ * kTileX + kPad) + tile_x() + j * kTileX] =
          product[i][j];
  __syncwarp();
}

/// Writes this thread's columns of a row, times `factor`.
template <int kHeadDim, int kN>
__device__ void store_row(const HeadOf<float>& head, int64_t row, const float (&values)[kN],
                          float factor) {
  using Columns = HeadColumns<kHeadDim>;
  if (row >= head.length) return;
#pragma unroll
  for (int p = 0; p < Columns::kPacks; ++p) {
    const int c = Columns::first(p);
    Pack<Columns::kWidth> pack;
#pragma unroll
    for (int w = 0; w < Columns::kWidth; ++w) pack.v[w] = values[p * Columns::kWidth + w] * factor;
    if (head.packs) {
      if (c < head.dim) store(head.row(row) + c, pack);
    } else {
#pragma unroll
      for (int w = 0; w < Columns::kWidth; ++w)
        if (c + w < head.dim) store(head.row(row) + c + w, Pack<1>{{pack.v[w]}});
    }
  }
}

}  // namespace lab::cuda
