// Where the harness and the rank programs of one job find each other's files.
#pragma once

#include <fmt/format.h>

#include <filesystem>

namespace lab::grading {

/// Of one rank's files: in a sandbox, a rank's process sees no other folder of its job.
inline std::filesystem::path rank_folder(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank{}", rank);
}

/// Removed by the rank program when it has been read, before any code that is judged runs.
inline std::filesystem::path rank_input_file(const std::filesystem::path& folder, int rank) {
  return rank_folder(folder, rank) / "input";
}

inline std::filesystem::path rank_result_file(const std::filesystem::path& folder, int rank) {
  return rank_folder(folder, rank) / "result";
}

/// Exists while the rank that will write `result_file` is inside a scenario: an end of the process
/// is then the doing of the code that is judged, whatever its exit code.
inline std::filesystem::path in_scenario_marker(const std::filesystem::path& result_file) {
  return result_file.string() + ".in_scenario";
}

}  // namespace lab::grading
