// The score report: failures first, then the table, then one line for machines.
#pragma once

#include <map>
#include <string>

#include "common/grading/lab_points.h"
#include "common/grading/task_result.h"

namespace lab::grading {

/// What one task's test prints: every failure with its details, and the points.
std::string task_report(const LabPoints& points, const TaskResult& result);

struct Score {
  int points = 0;
  bool graded = true;  // false if some task has no result
  std::string report;  // ends with "lab 01: 70/100", or "lab 01: not graded, ..."
};

/// `results` by task; a task without a result makes the score "not graded".
Score score(const LabPoints& points, const std::map<std::string, TaskResult>& results);

}  // namespace lab::grading
