// TaskResult: what the verdict says about one task, and its file in the build folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lab::grading {

/// One test that did not pass.
struct Failure {
  std::string test;     // in words: "padding is no target"
  std::string message;  // first line: the diagnosis; then details

  std::string diagnosis() const { return message.substr(0, message.find('\n')); }
};

struct TaskResult {
  std::string task;
  int tests = 0;
  std::vector<Failure> failures = {};
  std::string not_graded = {};  // why the harness could not judge; empty if it could

  bool graded() const { return not_graded.empty() && tests > 0; }
  bool passed() const { return graded() && failures.empty(); }
  bool unwritten() const;  // every test met the task's TODO
};

/// `program`: the checksum of what was judged, so that a result is never taken for that of a
/// program built later.
void write_result(const std::filesystem::path& file, const TaskResult& result,
                  const std::string& program);

/// Empty if there is no such file or it belongs to another program.
std::optional<TaskResult> read_result(const std::filesystem::path& file,
                                      const std::string& program);

}  // namespace lab::grading
