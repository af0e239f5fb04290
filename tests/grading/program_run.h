// A lab's real program with the implementation that is judged: does what was accepted task by task
// also work together?
#pragma once

#include <string>
#include <vector>

namespace lab::grading {

/// The suite of these tests is "TaskProgram". It has no points: if it fails although all tasks have
/// passed, the last task, which calls the others, loses its points.
inline constexpr const char* kProgramTask = "Program";

/// Whether this lab has a program (labNN_rehearsal) to be tested.
bool has_program();

/// Trains a small model for a few steps with the program and these options. Ends the test as failed
/// unless the program ends in time with the losses that it has with the solution.
void expect_program(const std::vector<std::string>& options);

}  // namespace lab::grading
