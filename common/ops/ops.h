// Every operation of the model, declared once. Each has a forward and a backward; the forward
// returns whatever else the backward needs besides its inputs. common/ops/cpu implements them for
// the CPU, common/gpu for GPUs: the device of the tensors decides, and all of them must be on the
// same one. On a GPU these functions only launch the work (see Accelerator); those that return a
// number wait for it.
//
// Notation: N rows (N = B*T positions), C channels. "Adds" means: the result is added to what the
// tensor holds. All functions throw Error when shapes do not fit.
//
// Tensors hold float32. Matrices of activations and of their gradients may also hold bfloat16: any
// tensor of linear layers (on the CPU, both factors or none), y and dy of RMSNorm, x of rope, all
// or none of attention, all or none of SwiGLU. Sums are always formed in float32 and rounded at the
// end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/tensor.h"

namespace lab {

// --- Linear layers: y = x W^T, with W stored as [out, in]. Rows of any tensor may be strided.

/// y [N, out] = x [N, in] W^T, or += if `accumulate`.
void linear_forward(const Tensor& x, const Tensor& weight, const Tensor& y,
                    bool accumulate = false);
/// dx [N, in] = dy [N, out] W, or += if `accumulate`.
void linear_backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx,
                           bool accumulate = false);
/// Adds dy^T x to dweight [out, in].
void linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dweight);

// --- Embedding: a row of a table for each token. Padding (-1) gives a row of zeros. The tokens are
//     on the device of the tensors.

/// y [N, C] from table [V, C]; N tokens. Throws Error for a token that is not in the table; on a
/// GPU this is not checked.
void embedding_forward(std::span<const int32_t> tokens, const Tensor& table, const Tensor& y);
/// Adds each row of dy to the row of its token in dtable, in the order of the tokens.
void embedding_backward(std::span<const int32_t> tokens, const Tensor& dy, const Tensor& dtable);

// --- RMSNorm (Zhang and Sennrich, 2019): y = x / rms(x) * weight, rms(x) = sqrt(mean(x²) + eps).

/// inverse_rms [N] receives 1 / rms of each row.
void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
                     const Tensor& inverse_rms);
/// The same y from a known inverse_rms: cheaper to repeat in the backward pass than to keep.
void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& inverse_rms,
                   const Tensor& y);
/// Adds to dx [N, C] and to dweight [C].
void rmsnorm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                      const Tensor& inverse_rms, const Tensor& dx, const Tensor& dweight);

// --- Rotary position embedding (Su et al., 2021), rotate-half layout: within a head of width D,
//     element i is paired with i + D/2 and the pair turned by the angle position / theta^(2i/D).

/// cos and sin of all angles: [positions, D], the first half of a row cos, the second sin.
Tensor rope_table(int64_t positions, int64_t head_dim, float theta);
enum class Rotation { kForward, kBackward };
/// Turns every head of every row of x [N, heads*D] in place. Rows come in sequences of `length`;
/// the first row of each has position `first_position`. The backward pass of a rotation is the
/// rotation by the negative angle, applied to the gradient.
void rope(const Tensor& x, const Tensor& table, int64_t length, int64_t first_position,
          Rotation rotation);

// --- Causal attention, with grouped queries (Ainslie et al., 2023): head h of the queries uses
//     head h / (heads/kv_heads) of keys and values. Memory for scores is a small block per thread
//     instead of T x T; the backward pass recomputes them from the saved logsumexp (Dao et al.,
//     2022).

struct AttentionShape {
  int64_t batch;     // B sequences
  int64_t queries;   // Tq query positions per sequence: the last Tq of the Tk positions
  int64_t keys;      // Tk key positions per sequence; equal to Tq in training
  int64_t heads;     // of the queries
  int64_t kv_heads;  // of keys and values
  int64_t head_dim;  // D
};
/// q and y [B*Tq, heads*D], k and v [B*Tk, kv_heads*D], logsumexp [B, heads, Tq] for the backward.
void attention_forward(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& y, const Tensor& logsumexp);
/// Overwrites dq, dk, dv. Training shapes only (Tq = Tk).
void attention_backward(const AttentionShape& shape, const Tensor& dy, const Tensor& q,
                        const Tensor& k, const Tensor& v, const Tensor& y, const Tensor& logsumexp,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv);

// --- SwiGLU (Shazeer, 2020): y = silu(gate) * up, silu(g) = g / (1 + e^-g).

/// gate_up [N, 2H] holds gate in its first H columns and up in the others; y [N, H].
void swiglu_forward(const Tensor& gate_up, const Tensor& y);
/// In place: gate_up becomes its own gradient, and dy [N, H] becomes y again, which the gradient of
/// the next layer's weight needs.
void swiglu_backward(const Tensor& gate_up, const Tensor& dy);

// --- Element-wise helpers.

/// x *= factor; x contiguous.
void scale(const Tensor& x, float factor);
/// y += x.
void add(const Tensor& x, const Tensor& y);
/// y += factor * x; both contiguous.
void add_scaled(const Tensor& x, float factor, const Tensor& y);
/// Sum of squares in double, the same for every thread count. x contiguous.
double sum_of_squares(const Tensor& x);
/// The same for each of several tensors on one device; waits for a GPU only once.
std::vector<double> sums_of_squares(std::span<const Tensor> tensors);

}  // namespace lab
