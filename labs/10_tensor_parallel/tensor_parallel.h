// Lab 10 · one layer over several ranks. This is the contract; you write tensor_parallel.cpp.
//
// All ranks of the group `ranks` hold the same hidden states and read the same tokens. Each has a
// slice of every matrix: rank r of n has block r of n equal ones. Matrices that are stored as one
// are divided one by one: gate_up [2H/n, C] is this rank's rows of gate, then its rows of up.
// Blocks of the vocabulary may differ by one, so a lab::Range says which tokens a rank has. All
// ranks call these functions together, and take part in every message. In tasks 1 and 2, a function
// that sums over the ranks does so by one all_reduce or all_reduce_async of the tensor that holds
// the result. A group of one rank sends nothing. Functions keep nothing but scratch between calls,
// and several microbatches may be in flight. Arguments are read-only unless the comment says
// otherwise; they are contiguous and do not overlap. Whatever a function has started is done when
// it returns.
//
// B sequences of T positions, N = B*T; C channels of the residual stream. What belongs to a slice
// is marked by /n: H/n channels of SwiGLU, V/n tokens of the vocabulary.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/layer.h"
#include "common/model/llama_stage.h"
#include "common/model/slice.h"
#include "common/model/weights.h"
#include "common/tensor/tensor.h"

namespace lab10 {

enum class Pass { kForward, kBackward };

/// Task 1 · Enters a region in which every rank computes something different from the same numbers.
///
/// Forward: `x` is the same on all ranks, and nothing happens. Backward: `x` is the gradient that
/// this rank's computation has contributed; on return it is the sum of all ranks' contributions,
/// the same on all of them. In place; `x` is contiguous.
void copy_to_ranks(const lab::Tensor& x, Pass pass, lab::ProcessGroup& ranks);

/// Task 1 · Leaves such a region. Forward: `x` is this rank's summand, on return the sum of all
/// summands. Backward: `x` is the gradient of the sum, the same on all ranks. It is also the
/// gradient of each summand, so nothing happens.
void sum_over_ranks(const lab::Tensor& x, Pass pass, lab::ProcessGroup& ranks);

/// Task 2 · A linear layer whose output is divided: y [N, out/n] = x [N, in] W^T, where
/// `weight.value` holds this rank's rows of W, [out/n, in] (`weight.rounded` is for GPUs).
/// (Megatron writes Y = XA with A = W^T and divides the columns of A: "column parallel".) `x` is
/// the same on all ranks.
void column_linear_forward(const lab::Tensor& x, const lab::Weight& weight, const lab::Tensor& y,
                           lab::ProcessGroup& ranks);
/// Task 2 · Its backward pass: `dy` [N, out/n] is this rank's. Adds to weight.gradient, and
/// overwrites dx [N, in] with the gradient of x, the same on all ranks.
void column_linear_backward(const lab::Tensor& dy, const lab::Tensor& x, const lab::Weight& weight,
                            const lab::Tensor& dx, lab::ProcessGroup& ranks);

/// Task 2 · A linear layer whose input is divided: `x` [N, in/n] is this rank's, `weight` holds its
/// columns of W, [out, in/n], and y [N, out] = sum over all ranks of x W^T, the same on all of
/// them.
void row_linear_forward(const lab::Tensor& x, const lab::Weight& weight, const lab::Tensor& y,
                        lab::ProcessGroup& ranks);
/// Task 2 · Its backward pass: `dy` [N, out] is the same on all ranks. Adds to weight.gradient, and
/// overwrites dx [N, in/n], this rank's.
void row_linear_backward(const lab::Tensor& dy, const lab::Tensor& x, const lab::Weight& weight,
                         const lab::Tensor& dx, lab::ProcessGroup& ranks);

/// Tasks 3 and 4 · The two blocks of a transformer layer, divided.
///
/// The formulas are those of the whole layer in common/model/layer.cpp, with the operations of
/// common/ops/ops.h. `shape.config` has the sizes of the slice: heads/n, kv_heads/n, hidden_dim/n;
/// head_dim() and dim are those of the whole model. `weights`: this rank's slices, and the norms,
/// which every rank has; their gradients are the same on all ranks, and complete.
/// `kept`: what the forward pass leaves for the backward pass of the same microbatch; nothing may
/// be kept elsewhere. Its tensors exist, in the right shapes, and later serve other microbatches:
/// write into them, but never assign another tensor to a member. A forward pass fills those that
/// its comment names, and the backward pass of the same block may overwrite these. The MLP's
/// functions only read what attention has filled; attention_backward comes last, and may overwrite
/// all of it.
/// Messages: one all_reduce of N*C numbers in each of these functions.

/// Task 3 · output [N, C] = middle + mlp(norm(middle)), where `kept.middle` is read; fills
/// `kept.mlp_inverse_rms` and `kept.gate_up`. `output` is not `kept.middle`.
void mlp_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                 lab::LayerActivations& kept, const lab::Tensor& output, lab::ProcessGroup& ranks);
/// Task 3 · `gradient` [N, C], the same on all ranks, is that of `output` on entry and that of
/// `kept.middle` on return. Adds to the gradients of mlp_norm, gate_up and down.
void mlp_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                  lab::LayerActivations& kept, const lab::Tensor& gradient,
                  lab::ProcessGroup& ranks);

/// Task 4 · kept.middle [N, C] = input + attention(norm(input)); fills
/// `kept.attention_inverse_rms`, `kept.qkv` (queries and keys rotated), `kept.attention`,
/// `kept.logsumexp` and `kept.middle`. The columns of kept.qkv, like the rows of weights.qkv, are
/// this rank's queries, then its keys, then its values.
void attention_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                       const lab::Tensor& rope_angles, const lab::Tensor& input,
                       lab::LayerActivations& kept, lab::ProcessGroup& ranks);
/// Task 4 · `gradient` [N, C], the same on all ranks, is that of `kept.middle` on entry and that of
/// `input` on return. Adds to the gradients of attention_norm, qkv and attention_out.
void attention_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                        const lab::Tensor& rope_angles, const lab::Tensor& input,
                        lab::LayerActivations& kept, const lab::Tensor& gradient,
                        lab::ProcessGroup& ranks);

/// Task 5 · The embedding, divided by rows: `table` [V/n, C] has the rows of the tokens
/// [vocabulary.first, vocabulary.last). `tokens`: N, of the whole vocabulary, or lab::kPadding,
/// whose row is 0. y [N, C], the same on all ranks. Messages: one all_reduce of N*C numbers.
void embed_forward(std::span<const int32_t> tokens, const lab::Weight& table,
                   const lab::Range& vocabulary, const lab::Tensor& y, lab::ProcessGroup& ranks);
/// Task 5 · Adds to this rank's rows of the table's gradient; dy [N, C] is the same on all ranks.
/// No message.
void embed_backward(std::span<const int32_t> tokens, const lab::Tensor& dy,
                    const lab::Weight& table, const lab::Range& vocabulary);

/// Task 5 · Lab 01's causal_lm_loss, computed without any rank holding a whole row of logits
/// (unless it is alone).
///
/// `logits` [B, T, V/n]: this rank's columns, of the tokens of `vocabulary`; on return their
/// gradient. Targets, padding, `total_targets` (0, or any positive number) and the accuracy (1e-5,
/// also for scores near 10,000) are as in lab 01. Returns the loss, the same on every rank, bit for
/// bit. Messages: at most three all_reduces, of at most 3*N numbers together; if the whole batch
/// has no target, you may send none. For positions without a target they may hold anything.
double causal_lm_loss(const lab::Tensor& logits, const lab::TokenBatch& batch,
                      int64_t total_targets, const lab::Range& vocabulary,
                      lab::ProcessGroup& ranks);

/// A rank's place in three dimensions. All count from 0.
struct Place {
  int pipeline = 0;
  int stage = 0;
  int slice = 0;

  bool operator==(const Place&) const = default;
};

/// A rank's groups. Within a group, ranks are numbered by the coordinate that differs.
struct Mesh {
  Place place;
  /// The slices of this rank's stage, in the same pipeline.
  lab::ProcessGroup slices;
  /// The stages of its pipeline that hold the same slice as this rank.
  lab::ProcessGroup pipeline;
  /// The ranks with the same weights, one in each pipeline.
  lab::ProcessGroup replicas;
  /// All stages and slices of its pipeline, which hold the whole model together, in the order of
  /// the ranks of `world`.
  lab::ProcessGroup model;
};

/// Task 6 · The mesh of dp pipelines of pp stages, each stage on tp ranks. All ranks of `world`
/// call it.
///
/// Ranks that talk most are closest: the slices of a stage are adjacent ranks. Then come the stages
/// of a pipeline, then the pipelines: with tp = 1, ranks are placed as in lab 06. Messages: four
/// calls of world.split, in the same order on all ranks; the groups may have any names.
/// Throws lab::Error, before any message, unless the world has dp * pp * tp ranks; that includes a
/// 0 among the three. None is negative, and the product fits into an int.
Mesh make_mesh(lab::ProcessGroup& world, int dp, int pp, int tp);

/// Task 6 · Clips the gradient of the whole model, which the ranks of `model` hold together.
///
/// Its norm counts every weight once. (A tied head is no weight of its own: it is the embedding, on
/// the same stage.) Matrices are divided; norms (tensors of one dimension) are on every rank of a
/// stage, with the same gradient. `stage.slice()` says which slice this rank holds. If the norm
/// exceeds `max_norm`, all gradients of this rank are scaled by max_norm / norm. `max_norm` is
/// positive, and may be infinite; you need not check that. Returns the norm before scaling, with
/// the same bits on every rank and a relative error of at most 1e-6. If it is not finite, the
/// gradients may hold anything afterwards. One lab::sum_over (common/comm/agreement.h), whether it
/// clips or not.
double clip_gradients(lab::LlamaStage& stage, double max_norm, lab::ProcessGroup& model);

}  // namespace lab10
