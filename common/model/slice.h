// TensorSlice: a model whose every layer is divided among several ranks (tensor parallelism).
#pragma once

#include <cstdint>
#include <string>

#include "common/model/config.h"
#include "common/tensor/tensor.h"

namespace lab {

/// Entries [first, last) of one dimension.
struct Range {
  int64_t first = 0;
  int64_t last = 0;

  int64_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};

/// The entries of `slice` when `count` of them are divided into equal blocks, in the order of the
/// ranks. If that is impossible, block sizes differ by one; only vocabularies are divided that way.
Range range_of(int64_t count, const TensorSlice& slice);

/// The sizes of a slice: an equal number of heads, kv_heads and hidden channels, and the range of
/// the vocabulary that `range_of` gives. Heads keep their width. Throws Error that names what
/// cannot be divided.
///
/// Some libraries repeat heads of keys and values where there are fewer of them than ranks, and pad
/// the vocabulary; here the first is refused, and the second is not needed.
LlamaConfig slice_config(const LlamaConfig& whole, const TensorSlice& slice);

/// How a parameter is divided, by the last words of its name: matrices that follow a norm and both
/// ends of the model by rows, those whose product is added to the residual stream by columns, norms
/// not at all: every rank has them.
enum class Cut { kNone, kRows, kColumns };
Cut cut_of(const std::string& name);

/// The shape of a parameter in the whole model.
Shape whole_shape(const std::string& name, const LlamaConfig& whole);

/// The slice of a whole parameter, as a view.
Tensor slice_of(const std::string& name, const Tensor& whole, const TensorSlice& slice);

}  // namespace lab
