// Comparing results with what the author of a starter or mutant promised.
#include "common/grading/expectations.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "common/tensor/error.h"

namespace lab::grading {
namespace {

bool any_message_contains(const TaskResult& result, const std::string& text) {
  return std::any_of(result.failures.begin(), result.failures.end(),
                     [&](const Failure& f) { return f.message.find(text) != std::string::npos; });
}

std::string messages(const TaskResult& result) {
  std::string text;
  for (const Failure& failure : result.failures)
    text += fmt::format("\n  {}: {}", failure.test, failure.message);
  return text;
}

}  // namespace

MutantHeader read_mutant_header(const std::filesystem::path& patch) {
  std::ifstream stream(patch);
  require(stream.good(), "cannot read {}", patch.string());
  MutantHeader header;
  for (std::string line; std::getline(stream, line) && !line.starts_with("---");) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, colon);
    const std::string value = line.substr(colon + 2);
    if (key == "message") header.message = value;
    if (key == "task") {
      std::istringstream words(value);
      header.tasks = {std::istream_iterator<std::string>(words), {}};
    }
  }
  require(!header.tasks.empty(), "{}: the header has no line \"task: ...\"", patch.string());
  if (header.tasks[0] == "none")
    header.tasks.clear();
  else
    require(!header.message.empty(), "{}: the header has no line \"message: ...\"", patch.string());
  return header;
}

std::string check_mutant(const MutantHeader& header, const TaskResults& results) {
  for (const auto& [id, result] : results) {
    const bool should_fail =
        std::find(header.tasks.begin(), header.tasks.end(), id) != header.tasks.end();
    if (!result.graded()) return fmt::format("task {} was not graded: {}", id, result.not_graded);
    if (should_fail && result.passed())
      return fmt::format("task {} passed, though it is wrong in this mutant", id);
    if (!should_fail && !result.passed())
      return fmt::format("task {} failed, though it is right:{}", id, messages(result));
    if (should_fail && !any_message_contains(result, header.message))
      return fmt::format("no failure of task {} says \"{}\":{}", id, header.message,
                         messages(result));
  }
  for (const std::string& id : header.tasks)
    if (!results.contains(id)) return fmt::format("there is no task {}", id);
  return "";
}

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
