#include "tests/grading/verdict_results.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "common/error.h"
#include "common/io/files.h"
#include "common/run/options/run_plan.h"
#include "tests/grading/program_run.h"
#include "tests/grading/score.h"
#include "tests/grading/verdict.h"
#include "tests/grading/verdict_session.h"

namespace lab::grading {

namespace fs = std::filesystem;

namespace {

fs::path folder_of_results() {
  if (!settings().results.empty()) return settings().results;
  return settings().programs.parent_path() / "results" /
         fmt::format("lab{}_{}", settings().points.number,
                     fs::path(settings().implementation).stem().string());
}

/// Results with other scenarios than usual have a separate folder.
fs::path result_folder() {
  const fs::path folder = folder_of_results();
  return scenario_seed() == 1 ? folder : folder / fmt::format("seed{}", scenario_seed());
}

}  // namespace

std::string read_text(const fs::path& file) {
  std::ifstream text(file);
  return {std::istreambuf_iterator<char>(text), {}};
}

const fs::path& source_folder() {
  static const fs::path folder = lab::source_folder();
  return folder;
}

fs::path source_file(const std::string& place) {
  const std::string& folder = settings().points.folder;
  const fs::path file = fs::path(place) / folder / folder.substr(folder.find('_') + 1);
  for (const char* extension : {".cpp", ".cu"})
    if (fs::exists(source_folder() / (file.string() + extension))) return file.string() + extension;
  fail("there is no {}.cpp", file.string());
}

/// What is judged: the student's or the solution's source file, else the shared object. (A released
/// copy of the workbook has no sources of solutions.)
fs::path judged_file() {
  if (settings().implementation.starts_with("student"))
    return source_folder() / source_file("labs");
  if (settings().implementation.starts_with("solution") &&
      fs::exists(source_folder() / "solutions" / settings().points.folder))
    return source_folder() / source_file("solutions");
  return settings().implementation_file();
}

fs::path result_file(const std::string& task) { return result_folder() / (task + ".json"); }

std::string fingerprint() {
  const auto of = [](const fs::path& file) { return checksum(MappedFile(file).bytes()); };
  return fmt::format("{:016x}{:016x}", of(judged_file()), of("/proc/self/exe"));
}

std::string stale() {
  const fs::path built = settings().implementation_file();
  if (!fs::exists(built)) return "it has not been built, or does not compile";
  if (fs::last_write_time(built) < fs::last_write_time(judged_file()))
    return "the file has changed since it was built";
  return "";
}

std::string build_error() {
  const fs::path note = folder_of_results() / "build_error.txt";
  if (!fs::exists(note) || fs::last_write_time(note) < fs::last_write_time(judged_file()))
    return "";
  return read_text(note);
}

TaskResults results_of(const std::string& fingerprint) {
  TaskResults results;
  for (const Task& task : settings().points.tasks)
    if (const auto result = read_result(result_file(task.id), fingerprint))
      results[task.id] = *result;
  if (const auto result = read_result(result_file(kProgramTask), fingerprint))
    results[kProgramTask] = *result;
  return results;
}

}  // namespace lab::grading
