// Putting results into words and points.
#include "tests/grading/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "common/run/options/run_plan.h"
#include "tests/grading/program_run.h"

namespace lab::grading {

namespace fs = std::filesystem;

namespace {

std::string indented(const std::string& text, const std::string& margin) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += margin + line + "\n";
  return result;
}

/// A diagnosis without what depends on the scenario: which rank was judged first, how many numbers
/// there are.
std::string cause(const Failure& failure) {
  static const std::regex of_the_scenario("(rank|microbatch) \\d+|\\d+ of \\d+ numbers");
  return std::regex_replace(failure.diagnosis(), of_the_scenario, "#");
}

/// Each cause once, in the order of the tests.
std::vector<Failure> distinct(const std::vector<Failure>& failures) {
  std::vector<Failure> result;
  std::set<std::string> told;
  for (const Failure& failure : failures)
    if (told.insert(cause(failure)).second) result.push_back(failure);
  return result;
}

/// A line about the tests that say the same as the first; empty if there is none.
std::string repeated(const TaskResult& result) {
  if (result.failures.empty() || result.unwritten()) return "";
  const auto more = std::ranges::count(result.failures, cause(result.failures[0]), cause) - 1;
  if (more == 0) return "";
  return fmt::format("({} more {} of this task {} the same)\n", more, more == 1 ? "test" : "tests",
                     more == 1 ? "says" : "say");
}

/// A line for each other cause: later tests often say what follows from the first.
std::string others(const Task& task, const TaskResult& result) {
  std::string lines;
  const std::vector<Failure> failures = distinct(result.failures);
  for (size_t i = 1; i < failures.size(); ++i)
    lines += fmt::format("task {} · {}: {}\n", task.id, failures[i].test, failures[i].diagnosis());
  return lines;
}

constexpr const char* kNotRun = "not run";

std::string state(const TaskResult& result) {
  if (result.not_graded == kNotRun) return "not tested";
  if (!result.graded()) return "not graded";
  if (result.passed()) return "passed";
  if (result.unwritten()) return "not written yet";
  return fmt::format("{} of {} tests failed", result.failures.size(), result.tests);
}

}  // namespace

std::string task_report(const LabPoints& points, const TaskResult& result) {
  const Task& task = result.task == kProgramTask ? points.tasks.back() : points.task(result.task);
  std::string report;
  const auto out = std::back_inserter(report);
  if (!result.graded()) {
    fmt::format_to(out, "task {} · {}: not graded, run again: {}\n", task.id, task.title,
                   result.not_graded);
    return report;
  }
  if (result.unwritten())
    fmt::format_to(out, "{}\n\n", result.failures[0].message);
  else if (!result.passed())
    fmt::format_to(out, "task {} · {}\n{}\n{}{}", task.id, result.failures[0].test,
                   indented(result.failures[0].message, "  "), repeated(result),
                   others(task, result));
  if (result.passed())
    for (const std::string& note : result.notes) fmt::format_to(out, "note: {}\n", note);
  else
    fmt::format_to(out, "{}\nhint: {}\n\n", points.place(task), task.hint);
  fmt::format_to(out, "task {} · {}: {}/{} ({})\n", task.id, task.title,
                 result.passed() ? task.points : 0, task.points, state(result));
  return report;
}

Score score(const LabPoints& points, const std::map<std::string, TaskResult>& results,
            bool has_program) {
  Score score;
  std::string failures;
  std::string table;
  const Task* next = nullptr;
  size_t width = 23;  // of the titles
  for (const Task& task : points.tasks) width = std::max(width, task.title.size());
  const auto result_of = [&](const std::string& id) {
    const auto found = results.find(id);
    return found != results.end() ? found->second : TaskResult{.task = id, .not_graded = kNotRun};
  };
  const bool all_passed = std::ranges::all_of(
      points.tasks, [&](const Task& task) { return result_of(task.id).passed(); });
  const bool program_judges = has_program && all_passed;
  const TaskResult program = result_of(kProgramTask);
  for (const Task& task : points.tasks) {
    const bool composes = program_judges && &task == &points.tasks.back();
    const TaskResult result = composes && !program.passed() ? program : result_of(task.id);
    const int reached = result.passed() ? task.points : 0;
    score.points += reached;
    score.graded = score.graded && result.graded();
    if (next == nullptr && !result.passed()) next = &task;
    if (result.unwritten())
      failures += "  " + result.failures[0].message + "\n";
    else if (!result.failures.empty())
      failures +=
          fmt::format("  task {} · {}\n{}{}{}", task.id, result.failures[0].test,
                      indented(result.failures[0].told(), "    "),
                      indented(repeated(result), "    "), indented(others(task, result), "  "));
    if (!result.graded()) failures += fmt::format("  task {}: {}\n", task.id, result.not_graded);
    table +=
        fmt::format("  {:<4}{:<{}}{:>4}/{:<3}  {}\n", task.id, task.title, width,
                    result.graded() ? std::to_string(reached) : "-", task.points, state(result));
  }
  if (program_judges && program.passed())
    table += fmt::format("      {:<{}}          passed\n", "the lab's program", width);
  if (!failures.empty()) score.report = "what to fix:\n" + failures + "\n";
  score.report += fmt::format("lab {} · {}\n{}", points.number, points.title, table);
  const fs::path experiments = source_folder() / "labs" / points.folder / "experiments.txt";
  if (next != nullptr)
    score.report += fmt::format("next: {}\n", points.place(*next));
  else if (fs::exists(experiments))
    score.report +=
        fmt::format("next: the experiments: ./workbook break {}\n", points.short_number());
  score.report +=
      score.graded ? fmt::format("\nlab {}: {}/{}\n", points.number, score.points, points.total())
                   : fmt::format("\nlab {}: not graded, run again: ./workbook test {}\n",
                                 points.number, points.short_number());
  return score;
}

}  // namespace lab::grading
