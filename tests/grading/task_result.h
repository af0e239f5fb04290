// TaskResult: what the verdict says about one task, and its file in the build folder.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lab::grading {

/// One test that did not pass.
struct Failure {
  std::string test;     // in words: "padding is no target"
  std::string message;  // first line: the diagnosis; then details

  std::string diagnosis() const { return message.substr(0, message.find('\n')); }
  /// What the score shows: the diagnosis, and the line of numbers or places that belongs to it.
  std::string told() const { return message.substr(0, message.find('\n', diagnosis().size() + 1)); }
};

struct TaskResult {
  std::string task;
  int tests = 0;
  std::vector<Failure> failures = {};
  std::string not_graded = {};       // why the harness could not judge; empty if it could
  std::set<std::string> notes = {};  // told if it passes; not kept in the file

  bool graded() const { return not_graded.empty() && tests > 0; }
  bool passed() const { return graded() && failures.empty(); }
  bool unwritten() const;  // every test met the task's TODO
};

using TaskResults = std::map<std::string, TaskResult>;  // by task

/// `fingerprint`: of the file that was judged and of the tests, so that a result is never taken for
/// that of another version.
void write_result(const std::filesystem::path& file, const TaskResult& result,
                  const std::string& fingerprint);

/// Empty if there is no such file or it belongs to another version; "" reads that of any.
std::optional<TaskResult> read_result(const std::filesystem::path& file,
                                      const std::string& fingerprint);

}  // namespace lab::grading
