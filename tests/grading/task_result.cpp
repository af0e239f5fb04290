// TaskResult as JSON.
#include "tests/grading/task_result.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/io/files.h"

namespace lab::grading {

bool TaskResult::unwritten() const {
  const std::string todo = "task " + task + " is not written yet: ";
  return graded() && static_cast<int>(failures.size()) == tests &&
         std::all_of(failures.begin(), failures.end(),
                     [&](const Failure& failure) { return failure.message.starts_with(todo); });
}

void write_result(const std::filesystem::path& file, const TaskResult& result,
                  const std::string& fingerprint) {
  nlohmann::json json{{"task", result.task},
                      {"fingerprint", fingerprint},
                      {"tests", result.tests},
                      {"passed", result.passed()},
                      {"not_graded", result.not_graded},
                      {"failures", nlohmann::json::array()}};
  for (const Failure& failure : result.failures)
    json["failures"].push_back({{"test", failure.test}, {"message", failure.message}});
  // What a student's program printed need not be UTF-8.
  write_file(file, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::optional<TaskResult> read_result(const std::filesystem::path& file,
                                      const std::string& fingerprint) {
  std::ifstream stream(file);
  const nlohmann::json json = nlohmann::json::parse(stream, nullptr, false);
  if (json.is_discarded()) return std::nullopt;
  if (!fingerprint.empty() && json.value("fingerprint", "") != fingerprint) return std::nullopt;
  TaskResult result{.task = json.at("task"), .tests = json.at("tests")};
  result.not_graded = json.at("not_graded");
  for (const auto& failure : json.at("failures"))
    result.failures.push_back({failure.at("test"), failure.at("message")});
  return result;
}

}  // namespace lab::grading
