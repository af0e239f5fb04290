// Whether each stage's list is complete and in order by itself, whatever the other stages do.
#pragma once

#include <string>

#include "common/pipeline/schedule.h"

namespace lab {

/// What is wrong with a stage's list, as in `validate`; empty if nothing is. `program`: messages
/// are expected.
std::string check_stage(const Schedule& schedule, int stage, bool program);

}  // namespace lab
