// A correct cross_entropy in the place of the student's, for the test of task 1b. It refuses what
// no cross-entropy can answer.
//
// The contract, single_gpu.h, declares the function weak; it is not included here, so that this one
// is strong and takes its place.
#include <cstdint>
#include <span>

#include "common/data/batch.h"
#include "common/tensor/error.h"
#include "tests/labs/01_single_gpu/reference.h"

namespace lab01 {

double cross_entropy(std::span<float> logits, int32_t target, float scale);

double cross_entropy(std::span<float> logits, int32_t target, float scale) {
  lab::require(target != lab::kPadding,
               "cross_entropy was called with padding as the target: a position whose next token "
               "is lab::kPadding predicts nothing");
  lab::require(target >= 0 && static_cast<size_t>(target) < logits.size(),
               "cross_entropy was called with target {}, but there are {} scores: was a token read "
               "from beyond its row, or are the scores not one row of V?",
               target, logits.size());
  return reference::cross_entropy(logits, target, static_cast<double>(scale));
}

}  // namespace lab01
