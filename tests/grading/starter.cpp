// Looking for TODOs in files and messages.
#include "tests/grading/starter.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <regex>

#include "common/error.h"

namespace lab::grading {

bool is_unwritten(const std::filesystem::path& source, const std::string& task) {
  std::ifstream stream(source);
  require(stream.good(), "cannot read {}", source.string());
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return std::regex_search(text, std::regex("not_implemented\\(\\s*\"" + task + "\""));
}

std::string check_starter(const TaskResult& result, const std::string& source) {
  if (!result.graded()) return "not graded: " + result.not_graded;
  const std::string wanted =
      fmt::format("task {} is not written yet: {}, TODO({})", result.task, source, result.task);
  if (static_cast<int>(result.failures.size()) != result.tests)
    return fmt::format("{} of {} tests of task {} passed, though it is not written",
                       result.tests - static_cast<int>(result.failures.size()), result.tests,
                       result.task);
  for (const Failure& failure : result.failures)
    if (failure.message != wanted)
      return fmt::format("{}: it should say \"{}\" and nothing else, it says:\n  {}", failure.test,
                         wanted, failure.message);
  return "";
}

}  // namespace lab::grading
