// Whether each stage's list, taken alone, is complete and in order.
#pragma once

#include <string>

#include "common/pipeline/schedule.h"

namespace lab {

/// What is wrong with a stage's list, as in `validate`; empty if nothing is. `program`: it must
/// have messages.
std::string check_stage(const Schedule& schedule, int stage, bool program);

}  // namespace lab
