// The score report: failures first, then the table, then one line for machines.
#pragma once

#include <string>

#include "tests/grading/lab_points.h"
#include "tests/grading/task_result.h"

namespace lab::grading {

/// What one task's test prints: the first failure with its details, a line for
/// each other cause, and the points.
std::string task_report(const LabPoints& points, const TaskResult& result);

struct Score {
  int points = 0;
  bool graded = true;  // false if some task has no result
  std::string report;  // ends with "lab 01: 70/100", or "lab 01: not graded, ..."
};

/// `results` by task; a task without a result makes the score "not graded". With `has_program` the
/// lab's program is tested when all tasks have passed (program_run.h); where it fails, the last
/// task, which calls the others, has no points.
Score score(const LabPoints& points, const TaskResults& results, bool has_program = false);

}  // namespace lab::grading
