// Tiles of bfloat16 in shared memory: rows of one head that all warps of a block read.
//
// Rows are kHeadDim + 8 elements apart. That is an odd multiple of 16 bytes, so the 8 rows that
// tensor cores read at a time (tensor_core.h) are in different banks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/gpu/kernels/attention_heads.h"
#include "common/gpu/kernels/matrix.h"
#include "common/gpu/kernels/row_warps.h"

namespace lab::cuda {

using Bfloat16Head = HeadOf<__nv_bfloat16>;

/// 8 neighbours are 16 bytes, the most that a thread can read at a time. They are moved as a uint4,
/// which is four registers; as 8 separate elements they would take up 8.
constexpr int kEight = 8;
using EightBfloat16 = uint4;

template <int kHeadDim>
constexpr int kPitch = kHeadDim + kEight;

/// Whether all accesses to these heads can be packs of 8.
inline bool eights_fit(const Bfloat16Matrix& m) {
  return reinterpret_cast<uintptr_t>(m.data) % sizeof(EightBfloat16) == 0 && m.stride % kEight == 0;
}
template <typename... Matrices>
bool eights_fit(int64_t head_dim, const Matrices&... matrices) {
  return head_dim % kEight == 0 && (eights_fit(matrices) && ...);
}

/// The calling thread's place in a block of one dimension.
__device__ inline int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / kWarp; }

/// Loads rows [first, first + kRows) of a head into a tile. All kThreads threads of the block
/// construct one, which starts all reads at the same time, and then call store(), which waits for
/// them. Elements outside the head are 0. Rows that cannot be read 16 bytes at a time are copied
/// entirely in store().
template <int kRows, int kHeadDim, int kThreads>
class TileRows {
 public:
  __device__ TileRows(const Bfloat16Head& head, int64_t first)
      : head_(head), rows_(static_cast<int>(min(head.length - first, int64_t{kRows}))) {
    head_.data = head.row(first);
    if (!head.packs) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      // Always reading something avoids a branch, which would hold up the reads after it.
      const __nv_bfloat16* from = exists(i) ? head_.row(row() + i * kStep) + column() : head.data;
      eights_[i] = *reinterpret_cast<const EightBfloat16*>(from);
    }
  }

  __device__ void store(__nv_bfloat16* tile) const {
    if (!head_.packs) return copy(tile);
    if (column() >= kHeadDim) return;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      *reinterpret_cast<EightBfloat16*>(tile + (row() + i * kStep) * kPitch<kHeadDim> + column()) =
          exists(i) ? eights_[i] : EightBfloat16{};
  }

 private:
  // Each thread reads the same column of every kStep-th row, so it computes only one address.
  static constexpr int kThreadsOfRow = kHeadDim == 48 ? 8 : kHeadDim / kEight;
  static constexpr int kStep = kThreads / kThreadsOfRow;
  static constexpr int kEach = kRows / kStep;
  static_assert(kThreadsOfRow * kStep == kThreads && kEach * kStep == kRows);

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kThreadsOfRow; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kThreadsOfRow * kEight; }

  __device__ bool exists(int i) const { return row() + i * kStep < rows_ && column() < head_.dim; }

  __device__ void copy(__nv_bfloat16* tile) const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kHeadDim; i += kThreads) {
      const int r = i / kHeadDim;
      const int c = i % kHeadDim;
      const bool exists = r < rows_ && c < head_.dim;
      tile[r * kPitch<kHeadDim> + c] = exists ? head_.row(r)[c] : __float2bfloat16(0.0F);
    }
  }

  Bfloat16Head head_;  // from row `first` on
  int rows_;           // of the tile that exist
  EightBfloat16 eights_[kEach];
};

/// A warp writes the first kRows rows of a tile to rows [first, first + kRows) of a head; rows
/// outside the head are left out.
template <int kRows, int kHeadDim>
__device__ void store_tile(const __nv_bfloat16* tile, const Bfloat16Head& head, int64_t first) {
  if (head.packs) {
    constexpr int kEights = kHeadDim / kEight;
#pragma unroll
    for (int i = lane(); i < kRows * kEights; i += kWarp) {
      const int r = i / kEights;
      const int c = i % kEights * kEight;
      if (first + r < head.length && c < head.dim)
        *reinterpret_cast<EightBfloat16*>(head.row(first + r) + c) =
            *reinterpret_cast<const EightBfloat16*>(tile + r * kPitch<kHeadDim> + c);
    }
  } else {
#pragma unroll 1
    for (int i = lane(); i < kRows * kHeadDim; i += kWarp) {
      const int r = i / kHeadDim;
      const int c = i % kHeadDim;
      if (first + r < head.length && c < head.dim)
        head.row(first + r)[c] = tile[r * kPitch<kHeadDim> + c];
    }
  }
}

}  // namespace lab::cuda
