// What becomes of the gradients when stages mix microbatches up.
#pragma once

#include <string>
#include <vector>

#include "tests/labs/05_microbatches/waves.h"

namespace lab05 {

/// A mistake, and the gradients of the whole model that it gives.
struct Hypothesis {
  std::string message;
  lab::grading::Numbers gradient;
};

/// Each way to mix up the microbatches of a wave. None if they differ in shape: then they cannot be
/// mixed up.
std::vector<Hypothesis> mixed_up(const Wave& wave);

}  // namespace lab05
