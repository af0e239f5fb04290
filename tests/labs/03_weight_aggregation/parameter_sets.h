// Weights for the tests of tasks 1b and 4: a few tensors with the names of a small LLaMA.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/grading/compare.h"
#include "common/grading/parcel.h"
#include "common/tensor/tensor.h"

namespace lab03 {

using Numbers = std::vector<double>;

inline const std::vector<std::pair<std::string, lab::Shape>>& parameter_shapes() {
  static const std::vector<std::pair<std::string, lab::Shape>> shapes = {
      {"model.embed_tokens.weight", {6, 4}},
      {"model.layers.0.input_layernorm.weight", {4}},
      {"model.layers.0.self_attn.q_proj.weight", {4, 4}},
      {"model.layers.0.mlp.down_proj.weight", {4, 7}},
      {"model.norm.weight", {4}},
      {"lm_head.weight", {6, 4}},
  };
  return shapes;
}

/// All tensors of one kind of one rank, one behind the other.
inline Numbers joined(const lab::grading::Parcel& parcel, const std::string& kind) {
  Numbers all;
  for (size_t i = 0; i < parameter_shapes().size(); ++i) {
    const Numbers one = lab::grading::to_doubles(parcel.tensor(fmt::format("{}.{}", kind, i)));
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// Element i of `joined`: "model.norm.weight, element 3".
inline std::string element_name(size_t i) {
  for (const auto& [name, shape] : parameter_shapes()) {
    size_t count = 1;
    for (int64_t extent : shape) count *= static_cast<size_t>(extent);
    if (i < count) return fmt::format("{}, element {}", name, i);
    i -= count;
  }
  return "";
}

/// The weights and gradients of rank `rank`; unlike those of the others, and not small.
inline lab::grading::Parcel parameter_set(int rank, double share) {
  std::mt19937_64 generator(1000 + static_cast<uint64_t>(rank));
  const auto random = [&] {
    return static_cast<float>(static_cast<double>(generator() >> 11) * 0x1.0p-52 - 1.0);
  };
  lab::grading::Parcel parcel;
  parcel.set("share", share);
  parcel.set("parameters", static_cast<double>(parameter_shapes().size()));
  for (size_t i = 0; i < parameter_shapes().size(); ++i) {
    const auto& [name, shape] = parameter_shapes()[i];
    parcel.set_text(fmt::format("name.{}", i), name);
    for (const char* kind : {"value", "gradient"}) {
      const lab::Tensor tensor = lab::Tensor::empty(shape);
      for (float& number : tensor.values()) number = random();
      parcel.set(fmt::format("{}.{}", kind, i), tensor);
    }
  }
  return parcel;
}

inline std::vector<lab::grading::Parcel> parameter_sets(const Numbers& shares) {
  std::vector<lab::grading::Parcel> inputs;
  for (size_t r = 0; r < shares.size(); ++r)
    inputs.push_back(parameter_set(static_cast<int>(r), shares[r]));
  return inputs;
}

/// `joined` of every rank.
inline std::vector<Numbers> joined(const std::vector<lab::grading::Parcel>& parcels,
                                   const std::string& kind) {
  std::vector<Numbers> all;
  for (const lab::grading::Parcel& parcel : parcels) all.push_back(joined(parcel, kind));
  return all;
}

/// Sum over the ranks of factor(r) * values[r].
template <typename Factor>
Numbers combined(const std::vector<Numbers>& values, const Factor& factor) {
  Numbers sum(values[0].size(), 0.0);
  for (size_t r = 0; r < values.size(); ++r)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor(r) * values[r][i];
  return sum;
}

}  // namespace lab03
