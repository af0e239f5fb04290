// What training steps of two implementations recorded, compared in the order in which they computed
// it.
#pragma once

#include <string>
#include <vector>

#include "tests/grading/parcel.h"

namespace lab::grading {

/// Numbers of step S (from 1) are the same within S times this fraction: of each number, or of a
/// tenth of the largest one recorded with it. A judge, which judges every step from the weights
/// that the ranks have, allows less; here rounding grows from step to step.
inline constexpr double kSameFraction = 1e-3;

/// The first place where record_steps has recorded something else: in words, with the step (from
/// 1), the rank, the microbatch of logits, and the parameter. Empty if there is none. `got`,
/// `expected`: what the ranks with these `inputs` returned.
std::string first_difference(const std::vector<Parcel>& inputs, const std::vector<Parcel>& got,
                             const std::vector<Parcel>& expected);

}  // namespace lab::grading
