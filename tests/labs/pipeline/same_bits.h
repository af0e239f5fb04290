// The bits of a pipeline and of one process. For verdicts.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/grading/verdict_session.h"
#include "common/tensor/error.h"

namespace pipeline_tests {

/// To be called when the numbers are known to be right within their tolerance. A student whose
/// numbers differ from the oracle's in their last bits reads a note; the solution's must not ("What
/// equal means" in docs/architecture.md): its task is then not graded, which fails its test.
inline void confirm_bits(const std::vector<double>& got, const std::vector<double>& oracle,
                         const std::string& what) {
  if (got == oracle) return;
  lab::require(lab::grading::settings().implementation != "solution",
               "{}: the solution and one process differ in their last bits", what);
  fmt::print("note: {}: right, though not in the contracted order: the last bits differ\n", what);
}

}  // namespace pipeline_tests
