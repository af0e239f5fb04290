// Reading, applying and judging mutants.
#include "tests/grading/mutants.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include "common/error.h"

namespace lab::grading {
namespace {

bool any_message_contains(const TaskResult& result, const std::string& text) {
  return std::any_of(result.failures.begin(), result.failures.end(),
                     [&](const Failure& f) { return f.message.find(text) != std::string::npos; });
}

std::string messages(const TaskResult& result) {
  std::string text;
  for (const Failure& failure : result.failures)
    text += fmt::format("\n  {}: {}", failure.test, failure.told());
  return text;
}

}  // namespace

std::string Mutant::apply(const std::string& solution) const {
  std::vector<std::pair<size_t, const Edit*>> places;
  for (const Edit& edit : edits) {
    const size_t place = solution.find(edit.find);
    require(place != std::string::npos, "{}: the solution has no lines\n{}adapt the mutant to it",
            name, edit.find);
    require(solution.find(edit.find, place + 1) == std::string::npos,
            "{}: the solution has these lines more than once; give more of their surroundings:\n{}",
            name, edit.find);
    places.emplace_back(place, &edit);
  }
  std::string text = solution;
  std::ranges::sort(places, std::greater<>());  // from the end, so that places stay valid
  for (const auto& [place, edit] : places) text.replace(place, edit->find.size(), edit->replace);
  return text;
}

std::vector<std::string> Mutant::edited_tasks(const std::string& solution,
                                              const std::vector<std::string>& all_tasks) const {
  std::vector<std::string> edited;
  for (const Edit& edit : edits) {
    const size_t heading = solution.rfind("// Task", solution.find(edit.find));
    if (heading == std::string::npos) return {};
    // "// Tasks 4a and 4b", "// Task 5: why".
    std::string line = solution.substr(heading, solution.find('\n', heading) - heading);
    std::ranges::replace(line, ':', ' ');
    std::istringstream words(line);
    for (std::string word; words >> word;)
      if (std::ranges::count(all_tasks, word) > 0 && std::ranges::count(edited, word) == 0)
        edited.push_back(word);
  }
  return edited;
}

std::vector<Mutant> read_mutants(const std::filesystem::path& file) {
  std::ifstream stream(file);
  require(stream.good(), "cannot read {}", file.string());
  std::vector<Mutant> mutants;
  std::string* text = nullptr;  // of an edit, that lines are added to
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const auto where = [&] { return fmt::format("{}:{}", file.string(), number); };
    if (line.starts_with("# ") && text == nullptr) {
      mutants.push_back({.name = line.substr(2)});
    } else if (mutants.empty()) {
      continue;  // what the file says about itself
    } else if (line == "<<<<") {
      mutants.back().edits.emplace_back();
      text = &mutants.back().edits.back().find;
    } else if (line == "====") {
      require(text != nullptr, "{}: '====' outside of an edit", where());
      text = &mutants.back().edits.back().replace;
    } else if (line == ">>>>") {
      text = nullptr;
    } else if (text != nullptr) {
      *text += line + "\n";
    } else if (line.starts_with("task: ")) {
      std::istringstream words(line.substr(6));
      mutants.back().tests = {std::istream_iterator<std::string>(words), {}};
      if (mutants.back().tests == std::vector<std::string>{"none"}) mutants.back().tests.clear();
      for (const std::string& test : mutants.back().tests)
        mutants.back().tasks.push_back(test.substr(0, test.find('.')));
    } else if (line.starts_with("message: ")) {
      mutants.back().message = line.substr(9);
    } else {
      require(line.empty() || line.starts_with("why: "),
              "{}: expected task, message, why or <<<<, not '{}'", where(), line);
    }
  }
  for (const Mutant& mutant : mutants) {
    require(!mutant.edits.empty(), "{}: {} changes nothing", file.string(), mutant.name);
    require(mutant.is_correct() == mutant.message.empty(),
            "{}: {}: a wrong solution has a message, a correct one has none", file.string(),
            mutant.name);
  }
  return mutants;
}

std::string check_mutant(const Mutant& mutant, const TaskResults& results) {
  for (const auto& [id, result] : results) {
    const bool should_fail =
        std::find(mutant.tasks.begin(), mutant.tasks.end(), id) != mutant.tasks.end();
    if (!result.graded()) return fmt::format("task {} was not graded: {}", id, result.not_graded);
    if (should_fail && result.passed())
      return fmt::format("task {} passed, though it is wrong in this mutant", id);
    if (!should_fail && !result.passed())
      return fmt::format("task {} failed, though it is right:{}", id, messages(result));
    if (should_fail && !any_message_contains(result, mutant.message))
      return fmt::format("no failure of task {} says \"{}\":{}", id, mutant.message,
                         messages(result));
  }
  for (const std::string& id : mutant.tasks)
    if (!results.contains(id)) return fmt::format("there is no task {}", id);
  return "";
}

}  // namespace lab::grading
