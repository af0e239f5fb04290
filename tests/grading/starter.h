// The untouched starter must fail, by naming its TODOs.
#pragma once

#include <filesystem>
#include <string>

#include "tests/grading/task_result.h"

namespace lab::grading {

/// True if the file still has the task's call of not_implemented.
bool is_unwritten(const std::filesystem::path& source, const std::string& task);

/// Empty if every test of the task fails by naming the TODO, and in no other way.
std::string check_starter(const TaskResult& result, const std::string& source);

}  // namespace lab::grading
