// What the kernels of the backward pass of attention in bfloat16 share: arguments and tiles.
#pragma once

#include "common/gpu/cuda/context.h"
#include "common/gpu/cuda/dynamic_shared.h"
#include "common/gpu/kernels/attention.h"
#include "common/gpu/kernels/attention_fragments.h"

namespace lab::cuda {

struct BackwardArguments {
  AttentionShape shape;
  Bfloat16Matrix dy, q, k, v;
  const float* logsumexp;
  const float* delta;  // as logsumexp
  Bfloat16Matrix dq, dk, dv;
  bool packs;
};

/// A block's tiles in shared memory: two that stay, two that are loaded in turn, and logsumexp and
/// delta of the queries loaded. Wide heads leave fewer registers, so their left factors are not
/// kept, and fewer rows are loaded at a time.
template <int kHeadDim, int kWarps>
struct BackwardTiles {
  static constexpr bool kKept = kHeadDim <= 64;
  static constexpr int kStay = kWarps * kBlock;
  static constexpr int kPass = kHeadDim <= 64 ? kStay : kStay / 2;
  static constexpr int kN = kPass / kQuarter;
  static constexpr int kThreads = kWarps * kWarp;
  static_assert(kPass <= kThreads);
  /// Blocks for which a multiprocessor must have registers; 0: the compiler decides. Where there is
  /// a number, nvcc 13 would otherwise try for one more block (sm_90) and spill registers to
  /// memory.
  static constexpr int kAtOnce = (kHeadDim == 16                     ? 4
                                  : kHeadDim == 48 || kHeadDim == 64 ? 2
                                                                     : 0) *
                                 4 / kWarps;
  static constexpr int kPitch = cuda::kPitch<kHeadDim>;
  using Left = LeftFactor<kHeadDim, kKept>;
  using StayingRows = TileRows<kStay, kHeadDim, kThreads>;
  using PassingRows = TileRows<kPass, kHeadDim, kThreads>;
  using Product = float[kN][kNumbers];
  using Sum = float[kHeadDim / kQuarter][kNumbers];

  __nv_bfloat16* stay_a = dynamic_shared<__nv_bfloat16>();
  __nv_bfloat16* stay_b = stay_a + kStay * kPitch;
  __nv_bfloat16* pass_a = stay_b + kStay * kPitch;
  __nv_bfloat16* pass_b = pass_a + kPass * kPitch;
  float* logsumexp2 = reinterpret_cast<float*>(pass_b + kPass * kPitch);  // times log2(e)
  float* delta = logsumexp2 + kPass;

  static constexpr size_t shared_bytes() {
    return size_t{2} * (kStay + kPass) * kPitch * sizeof(__nv_bfloat16) +
           size_t{2} * kPass * sizeof(float);
  }
  /// The warp's own rows of a tile that stays.
  __device__ static __nv_bfloat16* own(__nv_bfloat16* tile) {
    return tile + warp() * kBlock * kPitch;
  }
};

/// dK and dV; needs delta.
void attention_dk_dv(const Context& context, const BackwardArguments& arguments);
/// dQ; likewise.
void attention_dq(const Context& context, const BackwardArguments& arguments);

}  // namespace lab::cuda
