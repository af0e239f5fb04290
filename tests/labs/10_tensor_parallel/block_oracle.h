// One block of a layer in one process: what tasks 3 and 4 are compared with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/model/layer.h"
#include "tests/labs/10_tensor_parallel/blocks.h"
#include "tests/labs/10_tensor_parallel/slices.h"

namespace lab10 {

struct BlockCase {
  std::string name;
  lab::LlamaConfig model;
  int64_t batch = 1;
  int64_t length = 4;
  size_t microbatches = 2;
  double leftover = 0;
  float gates = 1;      // factor of gate_proj
  float gradients = 1;  // factor of what comes in
  uint64_t seed = 1;

  int64_t rows() const { return batch * length; }
};

/// Of layer 0, by name.
using Values = std::map<std::string, Tensor>;

Values draw_values(const BlockCase& c);
Values initial_values(const BlockCase& c);
Tensor input_of(const BlockCase& c, size_t microbatch);
Tensor gradient_of(const BlockCase& c, size_t microbatch);

/// The values, with 0 for what other slices hold.
Values only_slice(const Values& values, const lab::TensorSlice& own);

struct BlockResult {
  std::vector<lab::LayerActivations> kept;  // per microbatch, by the forward pass
  std::vector<Numbers> outputs;             // likewise
  std::vector<Numbers> gradients;           // likewise, of the input
  std::map<std::string, Tensor> weights;  // the gradients of the block's weights, without leftover
};

/// The block in one process. `rotates`: whether positions are encoded.
BlockResult compute(const BlockCase& c, Block block, const Values& values, bool rotates = true);

/// A tensor that the forward pass keeps, and which of its numbers a slice has.
struct Kept {
  std::string name;
  std::string made_by;  // what is between the tensor before it and this one
  Numbers numbers;
};
/// What the block fills, in the order in which it does; of microbatch m, for one slice.
std::vector<Kept> kept_by(const BlockCase& c, Block block, const BlockResult& whole, size_t m,
                          const lab::TensorSlice& own);

}  // namespace lab10
