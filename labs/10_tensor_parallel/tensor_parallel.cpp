// Lab 10 · one layer over several ranks. You write this file; tensor_parallel.h is its contract.
#include "labs/10_tensor_parallel/tensor_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/ops/ops.h"
#include "common/optim/clip.h"
#include "common/tensor/parallel.h"
#include "common/todo.h"

namespace lab10 {

using lab::Tensor;

void copy_to_ranks(const Tensor& x, Pass pass, lab::ProcessGroup& ranks) {
  // TODO(1): every rank computes something different from the same x. Which pass needs a message,
  // and what does x hold before and after it? What about a group of one rank?
  lab::not_implemented("1", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void sum_over_ranks(const Tensor& x, Pass pass, lab::ProcessGroup& ranks) {
  // TODO(1): the other way round.
  lab::not_implemented("1", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void column_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y,
                           lab::ProcessGroup& ranks) {
  // TODO(2): y = x W^T with this rank's rows of W.
  lab::not_implemented("2", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void column_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                            const Tensor& dx, lab::ProcessGroup& ranks) {
  // TODO(2): the two backward operations of a linear layer, and one of task 1's functions.
  lab::not_implemented("2", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void row_linear_forward(const Tensor& x, const lab::Weight& weight, const Tensor& y,
                        lab::ProcessGroup& ranks) {
  // TODO(2): this rank's columns of W multiply this rank's slice of x. What is y then?
  lab::not_implemented("2", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void row_linear_backward(const Tensor& dy, const Tensor& x, const lab::Weight& weight,
                         const Tensor& dx, lab::ProcessGroup& ranks) {
  // TODO(2): does anything have to travel?
  lab::not_implemented("2", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void mlp_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                 lab::LayerActivations& kept, const Tensor& output, lab::ProcessGroup& ranks) {
  // TODO(3): the second half of layer_forward in common/model/layer.cpp, divided. It uses scratch
  // memory for what lies between operations; here Tensor::empty will do.
  //  1. Which of its two products is column parallel, which one row parallel?
  //  2. When is the residual path added, so that it is in the output once?
  lab::not_implemented("3", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void mlp_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                  lab::LayerActivations& kept, const Tensor& gradient, lab::ProcessGroup& ranks) {
  // TODO(3): the first half of layer_backward, divided.
  //  1. swiglu_backward turns kept.gate_up into its gradient, and dy into SwiGLU's output. Who
  //     needs that output, and when?
  //  2. rmsnorm_backward adds to `gradient` and to the norm's gradient. What must be complete then?
  lab::not_implemented("3", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void attention_forward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                       const Tensor& rope_angles, const Tensor& input, lab::LayerActivations& kept,
                       lab::ProcessGroup& ranks) {
  // TODO(4): the first half of layer_forward, divided.
  //  1. How many columns of kept.qkv are this rank's queries, keys and values? (Tensor::columns)
  //  2. Rotate queries and keys, then lab::attention_forward with this rank's heads.
  lab::not_implemented("4", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void attention_backward(const lab::LayerShape& shape, const lab::LayerWeights& weights,
                        const Tensor& rope_angles, const Tensor& input, lab::LayerActivations& kept,
                        const Tensor& gradient, lab::ProcessGroup& ranks) {
  // TODO(4): the second half of layer_backward, divided.
  lab::not_implemented("4", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void embed_forward(std::span<const int32_t> tokens, const lab::Weight& table,
                   const lab::Range& vocabulary, const Tensor& y, lab::ProcessGroup& ranks) {
  // TODO(5): one rank has the row of a token. What do the others put in its place, and which
  // function of task 1 brings the row to all?
  lab::not_implemented("5", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

void embed_backward(std::span<const int32_t> tokens, const Tensor& dy, const lab::Weight& table,
                    const lab::Range& vocabulary) {
  // TODO(5): which tokens concern this rank?
  lab::not_implemented("5", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

double causal_lm_loss(const Tensor& logits, const lab::TokenBatch& batch, int64_t total_targets,
                      const lab::Range& vocabulary, lab::ProcessGroup& ranks) {
  // TODO(5): lab 01's loss, with three numbers for each position that the ranks find together.
  //  1. The largest score. Which one must every rank subtract before it takes exponentials?
  //  2. The sum of the exponentials, and the score of the target: which rank has it?
  //  3. Gradient and loss follow from these on every rank alone.
  lab::not_implemented("5", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

Mesh make_mesh(lab::ProcessGroup& world, int dp, int pp, int tp) {
  // TODO(6): refuse a world of the wrong size; then the place, by division and remainder; then four
  // groups. Ranks of a group pass the same color: it is made of what they have in common.
  lab::not_implemented("6", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

double clip_gradients(lab::LlamaStage& stage, double max_norm, lab::ProcessGroup& model) {
  // TODO(6): lab::gradient_squares (common/optim/clip.h) has the sum of squares of each parameter,
  // lab::sum_over (common/comm/agreement.h) adds a number up over a group. Which squares may only
  // one slice add?
  lab::not_implemented("6", "labs/10_tensor_parallel/tensor_parallel.cpp");
}

}  // namespace lab10
