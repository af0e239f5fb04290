// Tests of the tests: the starter fails cleanly, a wrong solution fails for its reason.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/grading/lab_points.h"
#include "common/grading/task_result.h"

namespace lab::grading {

using TaskResults = std::map<std::string, TaskResult>;

/// The header of a mutant's patch: lines "task: 1b", "message: ...", "why: ..." before the diff.
struct MutantHeader {
  std::vector<std::string> tasks;  // those that must fail; "none": a correct solution
  std::string message;             // must occur in a failure of each of them
};
MutantHeader read_mutant_header(const std::filesystem::path& patch);

/// Empty if exactly the mutant's tasks fail, with its message; else what is wrong.
std::string check_mutant(const MutantHeader& header, const TaskResults& results);

/// True if the file still has the task's call of not_implemented.
bool is_unwritten(const std::filesystem::path& source, const std::string& task);

/// Empty if every test of the task fails by naming the TODO, and in no other way.
std::string check_starter(const TaskResult& result, const std::string& source);

}  // namespace lab::grading
