// The stages of the tests' model: six layers over up to six stages, as evenly as it goes.
#pragma once

#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab05 {

inline lab::LlamaStage tiny_stage(int stage, int stages) {
  using pipeline_tests::kLayers;
  return pipeline_tests::make_stage({.first_layer = kLayers * stage / stages,
                                     .last_layer = kLayers * (stage + 1) / stages,
                                     .embeds = stage == 0,
                                     .has_head = stage == stages - 1});
}

}  // namespace lab05
