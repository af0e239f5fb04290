// The modes of a verdict test: judge tasks, print the score, check the starter or a mutant.
#include "common/grading/verdict_main.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/grading/expectations.h"
#include "common/grading/rank_harness.h"
#include "common/grading/score.h"
#include "common/grading/verdict_session.h"
#include "common/io/files.h"
#include "common/tensor/error.h"

namespace lab::grading {
namespace {

namespace fs = std::filesystem;

using Tasks = std::vector<std::string>;

struct Options {
  std::string task;
  std::string implementation = "student";
  std::string mutant;
  bool starter = false;
  bool score = false;
};

fs::path result_folder() {
  return settings().programs.parent_path() / "results" /
         fmt::format("lab{}_{}", settings().points.number, settings().implementation);
}

fs::path result_file(const std::string& task) { return result_folder() / (task + ".json"); }

std::string program_checksum() {
  return fmt::format("{:016x}", checksum(MappedFile(settings().rank_program()).bytes()));
}

int judge(const std::string& only_task) {
  // A chosen single test, e.g. in a debugger, says nothing about its task.
  const bool complete = !only_task.empty() || GTEST_FLAG_GET(filter) == std::string("*");
  const std::string program = program_checksum();
  std::error_code ignored;
  if (complete)
    for (const Task& task : settings().points.tasks)
      if (only_task.empty() || task.id == only_task) fs::remove(result_file(task.id), ignored);

  int code = kPassed;
  for (const auto& [task, result] : run_tests(only_task.empty() ? Tasks{} : Tasks{only_task})) {
    fmt::print("{}", task_report(settings().points, result));
    if (complete) write_result(result_file(task), result, program);
    code = std::max(code, !result.graded() ? kNotGraded : result.passed() ? kPassed : kFailed);
  }
  return code;
}

/// With LAB_TEST_DEVICE=cuda, the implementation's rank program for a GPU (labs of kernels have
/// one).
std::string on_device(const std::string& implementation) {
  const char* device = std::getenv("LAB_TEST_DEVICE");
  return device != nullptr && std::string(device) == "cuda" ? implementation + "_gpu"
                                                            : implementation;
}

/// What cmake/run_build.sh has left when the implementation does not build; else empty.
std::string build_error() {
  if (fs::exists(settings().rank_program())) return "";
  std::ifstream note(result_folder() / "build_error.txt");
  return {std::istreambuf_iterator<char>(note), {}};
}

int print_score() {
  const LabPoints& points = settings().points;
  if (const std::string error = build_error(); !error.empty()) {
    fmt::print("{}\nlab {}: 0/{}\n", error, points.number, points.total());
    return kFailed;
  }
  TaskResults results;
  const std::string program = program_checksum();
  for (const Task& task : points.tasks)
    if (const auto result = read_result(result_file(task.id), program)) results[task.id] = *result;
  const Score total = score(points, results);
  fmt::print("{}", total.report);
  if (!total.graded) return kNotGraded;
  return total.points == points.total() ? kPassed : kFailed;
}

int report(const std::string& problem) {
  if (problem.empty()) return kPassed;
  fmt::print("{}\n", problem);
  return kFailed;
}

int check_starter_task(const fs::path& source_folder, const std::string& task) {
  const std::string& folder = settings().points.folder;
  const std::string name = folder.substr(folder.find('_') + 1);
  const std::string cpp = fmt::format("labs/{}/{}.cpp", folder, name);
  const std::string source =
      fs::exists(source_folder / cpp) ? cpp : fmt::format("labs/{}/{}.cu", folder, name);
  const bool unwritten = is_unwritten(source_folder / source, task);
  const bool built = fs::exists(settings().rank_program());
  if (unwritten && built) return report(check_starter(run_tests({task})[task], source));
  const std::string reason = built ? fmt::format("task {} has been begun in {}", task, source)
                                   : fmt::format("{} does not compile as it is now", source);
  const char* ci = std::getenv("CI");
  if (ci != nullptr && std::string(ci) == "true")
    return report(reason + "; what is published must be the untouched starter");
  fmt::print("skipped: {}\n", reason);
  return kSkipped;
}

/// The tasks that must fail, until they have; with LAB_MUTANTS=full all tests, also of the others,
/// which must pass (of a correct variant all do in any case): that takes several times as long.
std::string judge_mutant(const fs::path& patch) {
  const MutantHeader header = read_mutant_header(patch);
  const char* mode = std::getenv("LAB_MUTANTS");
  const bool full = mode != nullptr && std::string(mode) == "full";
  return check_mutant(header, full ? run_tests({}) : run_tests(header.tasks, header.message));
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

int run(int argc, char** argv, const fs::path& source_folder, const std::string& lab_folder) {
  forget_variables_of_googletest();
  setenv(kSimpleProductsVariable, kSimpleProducts, /*overwrite=*/1);
  testing::InitGoogleTest(&argc, argv);  // takes its own options out of argv
  Options options;
  CLI::App app("Judges an implementation of lab " + lab_folder + ".");
  app.add_option("--implementation", options.implementation, "student, solution or a mutant's name")
      ->capture_default_str();
  app.add_option("--task", options.task, "Judge this task only");
  app.add_flag("--score", options.score, "Print the score from the results of all tasks");
  app.add_flag("--starter", options.starter, "Check that the task fails by naming its TODO");
  app.add_option("--mutant", options.mutant, "Check that exactly what this patch promises fails");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  set_settings({.points = read_points(source_folder / "labs" / lab_folder / "points.json"),
                .programs = fs::read_symlink("/proc/self/exe").parent_path(),
                .implementation = on_device(options.implementation)});
  if (!options.task.empty()) settings().points.task(options.task);

  if (options.score) return print_score();
  if (options.starter) return check_starter_task(source_folder, options.task);
  if (!options.mutant.empty()) return report(judge_mutant(options.mutant));
  return judge(options.task);
}

}  // namespace

int verdict_main(int argc, char** argv, const std::string& source_folder,
                 const std::string& lab_folder) {
  try {
    return run(argc, argv, source_folder, lab_folder);
  } catch (const std::exception& error) {
    fmt::print("not graded, run again: {}\n", error.what());
    return kNotGraded;
  }
}

}  // namespace lab::grading
