// The weights or gradients of a stage as one tensor without gaps. Those of all stages, one behind
// the other, are those of the whole model.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/grading/parcel.h"
#include "common/model/llama_stage.h"

namespace pipeline_tests {

/// `flat`: laid out as stage.parameters().
inline lab::Tensor packed(const lab::LlamaStage& stage, const lab::Tensor& flat) {
  const lab::Tensor result = lab::Tensor::empty({stage.parameter_count()});
  float* next = result.data();
  for (const lab::Parameter& parameter : stage.named_parameters()) {
    const int64_t begin = parameter.value.data() - stage.parameters().data();
    next = std::copy_n(flat.data() + begin, parameter.value.numel(), next);
  }
  return result;
}

/// Names and sizes of the tensors in a packed one, for StageLayout.
inline void describe(const lab::LlamaStage& stage, lab::grading::Parcel& result) {
  std::string names;
  std::vector<double> sizes;
  for (const lab::Parameter& parameter : stage.named_parameters()) {
    names += parameter.name + "\n";
    sizes.push_back(static_cast<double>(parameter.value.numel()));
  }
  result.set_text("names", names);
  result.set("sizes", sizes);
}

/// Sets every gradient, but not the gaps between them.
inline void fill_gradients(const lab::LlamaStage& stage, float value) {
  for (const lab::Parameter& parameter : stage.named_parameters()) parameter.gradient.fill(value);
}

}  // namespace pipeline_tests
