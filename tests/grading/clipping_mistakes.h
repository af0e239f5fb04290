// Hypotheses about gradients that are weighed as they should be, and clipped in a wrong way.
#pragma once

#include <vector>

#include "tests/grading/training_mistakes.h"

namespace lab::grading {

/// Adds what the optimizer would have got; nothing if the step does not clip. `whole`: the right
/// gradients of the whole model, before clipping.
void add_clipping_mistakes(const TrainingStep& s, const Numbers& whole,
                           std::vector<Mistake>& mistakes);

}  // namespace lab::grading
