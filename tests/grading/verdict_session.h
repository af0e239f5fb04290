// VerdictSession: one run of a verdict test, from choosing tests to collecting their results.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/grading/lab_points.h"
#include "tests/grading/task_result.h"

namespace lab::grading {

/// Which implementation is judged, and where its programs are.
struct VerdictSettings {
  LabPoints points;
  std::filesystem::path programs;      // the folder of labNN_ranks
  std::string implementation;          // "student", "solution", a mutant's name, a shared object
  std::filesystem::path results = {};  // where results go, instead of the build folder
  bool compares = false;  // judge_calls compares training steps with the solution's, of whole files

  std::filesystem::path rank_program() const;
  std::filesystem::path implementation_file() const;  // the shared object
  std::filesystem::path solution_file() const;
};

/// The settings of this process, which the free functions of verdict.h need.
const VerdictSettings& settings();
void set_settings(VerdictSettings settings);

/// Runs the GoogleTest tests of these tasks, or single ones such as "3.GradientsAddUp" (none: all
/// tests), and sorts what came out by task. With `enough`, what is left of a task is skipped when a
/// test of it has failed with that text. `on_first_failure` is called with the result of a task so
/// far, when its first test has failed.
TaskResults run_tests(const std::vector<std::string>& tasks, const std::string& enough = "",
                      const std::function<void(const TaskResult&)>& on_first_failure = {});

/// Ends the test as not graded: the harness itself has failed.
[[noreturn]] void break_off(const std::string& message);

/// Has the report of the current task say this, once, if the task passes.
void note(const std::string& message);

/// Why `judge` ends the test as failed; empty if it does not.
std::string why_stopped(const std::function<void()>& judge);

/// How many calls of training steps have been compared.
int compared_calls();

}  // namespace lab::grading
