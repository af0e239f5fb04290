// The main function of verdict tests.
#pragma once

#include <string>

namespace lab::grading {

/// Exit codes of a verdict test.
inline constexpr int kPassed = 0;
inline constexpr int kFailed = 1;
inline constexpr int kNotGraded = 3;  // the harness failed, not the student
inline constexpr int kSkipped = 77;

/// `lab_folder`: "01_single_gpu". See --help for the modes.
int verdict_main(int argc, char** argv, const std::string& lab_folder);

}  // namespace lab::grading
