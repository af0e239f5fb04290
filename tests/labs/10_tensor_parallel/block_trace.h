// Every tensor of a block's backward pass in one process, for mistakes that take one for another.
#pragma once

#include "tests/labs/10_tensor_parallel/block_oracle.h"

namespace lab10 {

/// `first` is the matrix after the norm (gate and up, or queries, keys and values), `last` the one
/// whose product is added to the residual stream. N = B*T.
struct BlockTrace {
  Tensor input;          // [N, C]
  Tensor normed;         // [N, C]
  Tensor first;          // [N, W], the first matrix's product; queries and keys rotated
  Tensor last_input;     // [N, K], what the last matrix multiplies
  Tensor output_dy;      // [N, C], the gradient of the block's output
  Tensor last_input_dy;  // [N, K]
  Tensor first_dy;       // [N, W], rotated back
  Tensor input_dy;       // [N, C], the gradient of the block's input, with the residual path
};

BlockTrace trace(const BlockCase& c, Block block, const Values& values, const BlockResult& whole,
                 size_t microbatch);

/// The gradient of attention's queries, keys and values, if `qkv` is what the forward pass has
/// left; rotated back only if `rotates_back`.
Tensor qkv_gradient(const BlockCase& c, const BlockResult& whole, const BlockTrace& t,
                    size_t microbatch, const Tensor& qkv, bool rotates_back = true);

/// dy^T x, the rows of `parameter` in it: gate_proj is the upper half of its matrix, for instance.
Tensor weight_gradient(const BlockCase& c, const std::string& parameter, const Tensor& dy,
                       const Tensor& x);

/// The columns of queries, keys and values in `all`.
struct QkvColumns {
  QkvColumns(const BlockCase& c, const Tensor& all)
      : queries(c.model.heads * c.model.head_dim()),
        keys(c.model.kv_heads * c.model.head_dim()),
        q(all.columns(0, queries)),
        k(all.columns(queries, queries + keys)),
        v(all.columns(queries + keys, queries + 2 * keys)),
        rotated(all.columns(0, queries + keys)) {}
  int64_t queries, keys;
  Tensor q, k, v, rotated;
};

lab::AttentionShape attention_shape(const BlockCase& c);
Tensor rope_angles(const BlockCase& c);

}  // namespace lab10
