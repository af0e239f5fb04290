// Lab 01, CUDA part · three kernels of the training step. This is the contract; you write
// kernels.cu. Optional: the points are separate, and no other lab depends on it.
//
// All pointers refer to GPU memory, with no more than a float's alignment; no two arrays overlap;
// matrices are row-major without gaps. Each function launches one kernel, which does all the work,
// on the workbook's stream (lab::cuda::stream()), or none if a size is 0, and returns at once.
// Sizes may be anything from 0 up, rows up to 2^31 - 1: no row length is promised to be a multiple
// of the block or of the warp.
//
// Every result must be the same, to the last bit, in every run: no sum may depend on which thread
// comes first. The functions keep nothing between calls: results depend on the arguments alone.
#pragma once

#include <cstdint>

#include "common/optim/optimizer.h"

namespace lab01cuda {

/// Threads per block in the starter's three launches.
inline constexpr int kThreads = 128;

/// Task C1 · RMSNorm.
///     inverse_rms[n] = 1 / sqrt(mean over c of x[n, c]² + epsilon)
///     y[n, c] = x[n, c] * inverse_rms[n] * weight[c]
/// The threads of a block share the work of a row: in rows of 4,096 columns or more, a thread
/// reads at most a quarter as many numbers as the row has columns, and writes at most a quarter.
/// What is read twice counts twice, and reads of `weight` count as well. The starter's launch has
/// one block per row, which sums the row first within each thread, then within each warp by
/// shuffles, then across warps through shared memory; other ways are allowed. Accepted error of
/// each result: 1e-5 of it in rows of up to 100,000 columns, and ten times as much in longer ones.
/// `epsilon` is positive, and the sum of a row's squares is less than the largest float. If there
/// are no columns, nothing is written, not even inverse_rms.
void launch_rmsnorm(const float* x, const float* weight, float epsilon, float* y,
                    float* inverse_rms, int64_t rows, int64_t channels);

/// Task C2 · Softmax, cross-entropy and its gradient. Reads each row from memory at most twice;
/// beyond that, each thread may read the target and a few scores. (Reading is no race.) The threads
/// share the work of a row as in C1, and other ways than the starter's launch are allowed again.
/// `logits` [rows, vocab]: the scores of a position; on return their gradient,
///     scale * (softmax(logits[n]) - onehot(targets[n])).
/// `targets` [rows]: the token that came next, below `vocab`, or -1 where nothing is predicted:
/// loss 0, gradient 0, whatever the scores are, even infinite or NaN. `losses` [rows]: receives
/// -log softmax(logits[n])[targets[n]], not scaled. Results are finite as long as the difference
/// between a row's largest and smallest score is. Accepted errors in rows of up to 10,000 scores,
/// and ten times as much in longer ones: of a loss, 1e-5 (relative; below 1: absolute); of a
/// gradient, scale * (1e-5 (softmax + onehot) + 1e-7). `scale` is not negative. If there are no
/// scores, nothing is written, not even losses.
void launch_softmax_cross_entropy(float* logits, const int32_t* targets, float scale, float* losses,
                                  int64_t rows, int64_t vocab);

/// Task C3 · The Adam update of lab01::adam_update in one pass over memory: each of the four arrays
/// is read once, and three are written once. Formula, accepted errors, betas and steps are those of
/// lab01::adam_update (labs/01_single_gpu/single_gpu.h). In arrays of 100,000 elements or more, no
/// thread updates more than a thousandth of them; which ones is up to you.
void launch_adam(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 float* parameters, const float* gradients, float* first_moment,
                 float* second_moment, int64_t count);

}  // namespace lab01cuda
