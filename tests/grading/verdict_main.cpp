// The modes of a verdict test: judge tasks, print the score, check the starter or a mutant.
#include "tests/grading/verdict_main.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/io/files.h"
#include "common/run/launch/child_process.h"
#include "common/run/options/command_line.h"
#include "common/tensor/parallel.h"
#include "tests/grading/mutants.h"
#include "tests/grading/program_run.h"
#include "tests/grading/rank_harness.h"
#include "tests/grading/score.h"
#include "tests/grading/step_comparison.h"
#include "tests/grading/verdict.h"
#include "tests/grading/verdict_results.h"
#include "tests/grading/verdict_session.h"

namespace lab::grading {
namespace {

namespace fs = std::filesystem;

using Tasks = std::vector<std::string>;

struct Options {
  std::string task;
  std::string implementation = "student";
  std::string mutant;
  std::string mutants;
  std::string write_mutants;
  std::string results;
  bool starter = false;
  bool score = false;
  bool brief = false;
  bool program = false;
  bool compare = false;
  bool at_once = false;
};

/// What `--at-once` ends the report of a first failure with.
constexpr char kEndOfPart = '\f';

int judge(const Tasks& tasks, bool at_once = false) {
  // A chosen single test, e.g. in a debugger, says nothing about its task.
  const bool complete = !tasks.empty() || GTEST_FLAG_GET(filter) == std::string("*");
  const std::string before = fingerprint();
  std::error_code ignored;
  if (complete)
    for (const Task& task : settings().points.tasks)
      if (tasks.empty() || tasks[0] == task.id) fs::remove(result_file(task.id), ignored);
  if (const std::string reason = stale(); !reason.empty())
    fail("{}: {}", judged_file().string(), reason);

  int code = kPassed;
  const auto tell = [&](const TaskResult& so_far) {
    if (!at_once) return;
    fmt::print("{}{}", task_report(settings().points, so_far), kEndOfPart);
    std::fflush(stdout);
  };
  for (const auto& [task, result] : run_tests(tasks, "", tell)) {
    fmt::print("{}", task_report(settings().points, result));
    if (complete && fingerprint() == before) write_result(result_file(task), result, before);
    code = std::max(code, !result.graded() ? kNotGraded : result.passed() ? kPassed : kFailed);
  }
  return code;
}

/// With LAB_TEST_DEVICE=cuda, the implementation's shared object for a GPU (labs of kernels have
/// one).
std::string on_device(const std::string& implementation) {
  const char* device = std::getenv("LAB_TEST_DEVICE");
  return device != nullptr && std::string(device) == "cuda" ? implementation + "_gpu"
                                                            : implementation;
}

int print_score() {
  const LabPoints& points = settings().points;
  if (const std::string error = build_error(); !error.empty()) {
    fmt::print("{}\nlab {}: not tested: the file does not compile\n", error, points.number);
    return kFailed;
  }
  const Score total = score(points, results_of(fingerprint()), has_program());
  fmt::print("{}", total.report);
  if (!total.graded) return kNotGraded;
  return total.points == points.total() ? kPassed : kFailed;
}

/// "only task 1 tested since the last change: 0 of 10 points"; empty if none was.
std::string tested_in_part(const TaskResults& results) {
  std::string tasks;
  int reached = 0;
  int possible = 0;
  for (const Task& task : settings().points.tasks) {
    const auto found = results.find(task.id);
    if (found == results.end() || !found->second.graded()) continue;
    tasks += (tasks.empty() ? "" : ", ") + task.id;
    possible += task.points;
    if (found->second.passed()) reached += task.points;
  }
  if (tasks.empty()) return "";
  return fmt::format("only task{} {} tested since the last change: {} of {} points",
                     tasks.find(',') == std::string::npos ? "" : "s", tasks, reached, possible);
}

/// One line for `./workbook status`.
int print_brief_score() {
  const LabPoints& points = settings().points;
  const auto in_points = [&](const Score& score) {
    return fmt::format("{}/{}", score.points, points.total());
  };
  if (!build_error().empty()) {
    fmt::print("does not compile\n");
  } else if (const Score now = score(points, results_of(fingerprint()), has_program());
             now.graded) {
    fmt::print("{} points\n", in_points(now));
  } else if (const std::string some = tested_in_part(results_of(fingerprint())); !some.empty()) {
    fmt::print("{}\n", some);
  } else if (const TaskResults old = results_of(""); old.empty()) {
    fmt::print("not tested yet\n");
  } else {
    const Score before = score(points, old, has_program());
    fmt::print("changed since the last test{}\n",
               before.graded ? fmt::format(" ({} points)", in_points(before)) : "");
  }
  return kPassed;
}

int report(const std::string& problem) {
  if (problem.empty()) return kPassed;
  fmt::print("{}\n", problem);
  return kFailed;
}

int check_starter_task(const std::string& task) {
  const std::string source = source_file("labs");
  const bool unwritten = is_unwritten(source_folder() / source, task);
  const bool built = fs::exists(settings().implementation_file());
  if (unwritten && built) return report(check_starter(run_tests({task})[task], source));
  const std::string reason = built ? fmt::format("task {} has been begun in {}", task, source)
                                   : fmt::format("{} does not compile as it is now", source);
  const char* ci = std::getenv("CI");
  if (ci != nullptr && std::string(ci) == "true")
    return report(reason + "; what is published must be the untouched starter");
  fmt::print("skipped: {}\n", reason);
  return kSkipped;
}

std::vector<Mutant> mutants() {
  return read_mutants(source_folder() / "tests/labs" / settings().points.folder / "mutants.txt");
}

/// The source of every mutant, unless it is there already: what is older need not be built again.
/// Those of mutants that are no longer on file go.
int write_mutants(const fs::path& folder) {
  const fs::path solution = source_folder() / source_file("solutions");
  const std::string text = read_text(solution);
  fs::create_directories(folder);
  std::set<fs::path> written;
  for (const Mutant& mutant : mutants()) {
    const fs::path file = folder / (mutant.name + solution.extension().string());
    written.insert(file);
    const std::string mutated = mutant.apply(text);
    if (!fs::exists(file) || read_text(file) != mutated) std::ofstream(file) << mutated;
  }
  std::vector<fs::path> gone;
  for (const fs::path& file : fs::directory_iterator(folder))
    if (file.extension() == solution.extension() && !written.contains(file)) gone.push_back(file);
  for (const fs::path& file : gone) fs::remove(file);
  return kPassed;
}

/// A wrong solution: the tasks that must fail, until they have. A correct one: the tasks whose
/// functions it changes. With LAB_MUTANTS=full all tests, which takes several times as long.
std::string judge_mutant(const std::string& name) {
  for (const Mutant& mutant : mutants()) {
    if (mutant.name != name) continue;
    const char* mode = std::getenv("LAB_MUTANTS");
    const bool full = mode != nullptr && std::string(mode) == "full";
    Tasks all;  // without the program, which is run when all tasks have passed
    for (const Task& task : settings().points.tasks) all.push_back(task.id);
    if (mutant.is_correct()) {
      const std::string solution = read_text(source_folder() / source_file("solutions"));
      return check_mutant(mutant, run_tests(full ? Tasks{} : mutant.edited_tasks(solution, all)));
    }
    if (full) return check_mutant(mutant, run_tests(all));
    const std::string problem = check_mutant(mutant, run_tests(mutant.tests, mutant.message));
    if (problem.empty() || mutant.tests == mutant.tasks) return problem;
    fmt::print("not found by {}, trying all tests\n", fmt::join(mutant.tests, " and "));
    return check_mutant(mutant, run_tests(mutant.tasks, mutant.message));
  }
  fail("there is no mutant '{}'", name);
}

/// Judges all mutants of a task ("none": the correct solutions), each in a separate process.
int judge_mutants(const std::string& task) {
  int failed = 0;
  int judged = 0;
  for (const Mutant& mutant : mutants()) {
    if ((mutant.is_correct() ? "none" : mutant.tasks[0]) != task) continue;
    ++judged;
    ChildProcess child({"/proc/self/exe", "--implementation", mutant.name, "--mutant", mutant.name},
                       {});
    while (child.running()) {
      child.read_output();
      pollfd waiting{child.output_descriptor(), POLLIN, 0};
      poll(&waiting, 1, kPollMilliseconds);
    }
    child.read_output();
    const int status = child.wait_status();
    if (!child.output().empty()) fmt::print("{}: {}\n", mutant.name, child.output());
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kPassed) ++failed;
  }
  fmt::print("{} mutants of task {}, {} of them not as promised\n", judged, task, failed);
  return failed == 0 ? kPassed : kFailed;
}

/// The lab's program with this implementation, once all tasks have passed: halves that are accepted
/// each for itself must also work together.
int judge_program() {
  const TaskResults results = results_of(fingerprint());
  for (const Task& task : settings().points.tasks)
    if (const auto found = results.find(task.id);
        found == results.end() || !found->second.passed()) {
      fmt::print("skipped: the program is tested when all tasks have passed\n");
      return kSkipped;
    }
  return judge({kProgramTask});
}

/// The training steps of the implementation next to the solution's, in the scenarios of the task
/// that tests them. Tells the first difference.
int compare_steps() {
  const LabPoints& points = settings().points;
  const auto task = std::ranges::find(points.tasks, "train_step", &Task::title);
  require(task != points.tasks.end(), "lab {} has no training step to compare", points.number);
  if (const std::string reason = stale(); !reason.empty())
    fail("{}: {}", judged_file().string(), reason);
  GTEST_FLAG_SET(fail_fast, true);
  const TaskResult result = run_tests({task->id})[task->id];
  if (!result.not_graded.empty()) fail("{}", result.not_graded);
  for (const Failure& failure : result.failures) fmt::print("{}\n", failure.message);
  if (!result.failures.empty()) return kFailed;
  require(compared_calls() > 0, "the tests of task {} take no training step", task->id);
  fmt::print(
      "the same in {} scenarios: on every rank, the logits of each microbatch, the gradients given "
      "to the optimizer, the weights and the loss of step S are within S times {:g} % of the "
      "reference's\n(only the numbers of train_step, with the reference's loss and optimizer: "
      "./workbook test {} judges everything)\n",
      compared_calls(), 100 * kSameFraction, points.short_number());
  return kPassed;
}

/// Only this program's own options say which tests run: a CI system may have shards or repetitions
/// of its own in the environment.
void forget_variables_of_googletest() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (const std::string text = *variable; text.starts_with("GTEST_"))
      names.push_back(text.substr(0, text.find('=')));
  for (const std::string& name : names) unsetenv(name.c_str());
}

int run(int argc, char** argv, const std::string& lab_folder) {
  forget_variables_of_googletest();
  setenv(kSimpleProductsVariable, kSimpleProducts, /*overwrite=*/1);
  set_thread_count(1);  // oracles are small; threads would wait for each other on a busy machine
  testing::InitGoogleTest(&argc, argv);  // takes its own options out of argv
  Options options;
  CommandLine app("Judges an implementation of lab " + lab_folder + ".");
  app.add("--implementation", options.implementation, "",
          "student, solution, a mutant's name, or a shared object")
      .shows_default();
  app.add("--task", options.task, "", "Judge this task only");
  app.add_flag("--program", options.program, "Judge the lab's program, if all tasks passed");
  app.add_flag("--score", options.score, "Print the score from the results of all tasks");
  app.add_flag("--brief", options.brief, "The same in one line");
  app.add_flag("--at-once", options.at_once,
               "Also tell a task's first failure as soon as it is known");
  app.add_flag("--compare", options.compare, "Compare training steps with the solution's");
  app.add_flag("--starter", options.starter, "Check that the task fails by naming its TODO");
  app.add("--mutant", options.mutant, "", "Check that exactly what this mutant promises fails");
  app.add("--mutants", options.mutants, "", "Check all mutants of this task");
  app.add("--write-mutants", options.write_mutants, "", "Write their sources to this folder");
  app.add("--results", options.results, "", "Folder for results, instead of the build folder");
  try {
    app.read(argc, argv);
  } catch (const std::exception& error) {  // of the command line, or the text of --help
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  set_settings({.points = read_points(source_folder() / "labs" / lab_folder / "points.json"),
                .programs = fs::read_symlink("/proc/self/exe").parent_path(),
                .implementation = on_device(options.implementation),
                .results = options.results,
                .compares = options.compare});
  if (!options.task.empty()) settings().points.task(options.task);

  if (options.score) return print_score();
  if (options.brief) return print_brief_score();
  if (options.starter) return check_starter_task(options.task);
  if (!options.mutant.empty()) return report(judge_mutant(options.mutant));
  if (!options.mutants.empty()) return judge_mutants(options.mutants);
  if (!options.write_mutants.empty()) return write_mutants(options.write_mutants);
  if (options.program) return judge_program();
  if (options.compare) return compare_steps();
  return judge(options.task.empty() ? Tasks{} : Tasks{options.task}, options.at_once);
}

}  // namespace

int verdict_main(int argc, char** argv, const std::string& lab_folder) {
  try {
    return run(argc, argv, lab_folder);
  } catch (const std::exception& error) {
    fmt::print("not graded, run again: {}\n", error.what());
    return kNotGraded;
  }
}

}  // namespace lab::grading
