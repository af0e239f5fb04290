// Weights: how the parameters of a stage lie in memory, their names and initial values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/model/config.h"
#include "common/model/llama_stage.h"
#include "common/tensor/tensor.h"

namespace lab {

/// A weight and its gradient where the model computes with them.
struct Weight {
  Tensor value;
  Tensor gradient;
  Tensor rounded;  // the value in bfloat16: see Weights::round

  /// The value in the form that products with tensors of that type need.
  const Tensor& operand(ElementType type) const {
    return type == ElementType::kFloat32 ? value : rounded;
  }
};

/// Weights of one layer. Query, key and value projections are stacked in one matrix, as are gate
/// and up: one matrix product each instead of three and two. Q = heads*D, K = kv_heads*D.
struct LayerWeights {
  Weight attention_norm;  // [C]
  Weight qkv;             // [Q+2K, C]
  Weight attention_out;   // [C, Q]
  Weight mlp_norm;        // [C]
  Weight gate_up;         // [2H, C]
  Weight down;            // [C, H]
};

/// All weights of a stage: views of two flat buffers, values and gradients, or of what is bound
/// part by part (WeightMemory). Matrices start at multiples of 256 bytes (rounded ones of 128), so
/// that the same arithmetic gives the same bits in every stage.
struct Weights {
  /// `config` is that of the whole model. A slice has the values of the whole model.
  Weights(const LlamaConfig& config, const StageSpan& span, Device device, uint64_t seed,
          const TensorSlice& slice = {}, WeightMemory memory = WeightMemory::kOwn);

  Tensor values;     // flat; undefined if bound part by part
  Tensor gradients;  // flat, same layout
  Tensor rounded;    // flat, same layout, bfloat16; undefined until it is needed
  std::vector<Parameter> named;

  /// A part is the embedding, a layer, or norm with head; see LlamaStage::part_count.
  size_t part_count() const { return parts.size(); }
  /// The part of this stage's layer `layer`. If `layer` is the number of layers: that of norm and
  /// head.
  size_t part_of(size_t layer) const { return (span.embeds ? 1 : 0) + layer; }
  struct Part {
    std::string name;        // "model.layers.3"
    int64_t size = 0;        // elements of its piece of a flat buffer, with gaps
    size_t first_named = 0;  // the place in `named` of its first parameter
  };
  std::vector<Part> parts;
  int64_t weight_count = 0;  // without gaps
  /// Makes the part's weights, or their gradients, views of a flat tensor of at least the part's
  /// size; an undefined tensor unbinds them.
  void bind(size_t part, const Tensor& flat);
  void bind_gradient(size_t part, const Tensor& flat);
  /// Writes the initial values into the part's weights.
  void initialise(size_t part, uint64_t seed);
  /// The place in `named` of a part's first parameter; of what follows the last, for `part_count`.
  size_t first_of_part(size_t part) const {
    return part == part_count() ? named.size() : parts[part].first_named;
  }

  Weight embedding;  // [V, C], if the stage embeds
  std::vector<LayerWeights> layers;
  Weight norm;  // [C], if the stage has the head
  Weight head;  // [V, C], if the stage has the head

  /// A tied head on the same stage as the embedding shares its values, but its gradient is
  /// collected separately, outside the flat buffer, so that the sum is formed in the same order as
  /// with embedding and head on two stages. This adds it to the embedding's gradient; otherwise, or
  /// if gradients are bound part by part, it does nothing.
  void fold_tied_gradient();

  /// Brings `rounded` of all weights up to date: on a GPU, one kernel.
  void round();

  LlamaConfig whole;
  LlamaConfig config;  // of the slice of it that this stage's ranks hold
  StageSpan span;
  TensorSlice tensor_slice;
  WeightMemory memory;
  bool tied_here = false;

 private:
  /// A weight of a part, and the parameters that are stacked in it under the names of Hugging Face,
  /// each with the number of its rows.
  struct Slot {
    Weight* weight;
    Shape shape;
    std::vector<std::pair<std::string, int64_t>> names;
  };
  /// In the order in which they lie in memory.
  std::vector<Slot> slots(size_t part);
  std::vector<Parameter> named_views(size_t part);
  void view_as(Tensor Weight::*numbers, size_t part, const Tensor& flat);
  void name_again(size_t part);
};

/// Fills `value` with normal numbers of mean 0 that depend on seed and name only.
void initialise_normal(const Tensor& value, const std::string& name, float standard_deviation,
                       uint64_t seed);

}  // namespace lab
