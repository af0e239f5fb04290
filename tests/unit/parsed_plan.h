// The plan of a command line, and the error of a wrong one.
#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "common/run/training/settle_plan.h"

namespace lab {

inline RunPlan parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train");
  return settle_plan(static_cast<int>(arguments.size()), arguments.data(), {.about = "A test."});
}

/// Empty if there is none.
inline std::string error_of(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace lab
