// Where the harness and the rank programs of one job find each other's files.
#pragma once

#include <fmt/format.h>

#include <filesystem>

namespace lab::grading {

inline std::filesystem::path rank_input_file(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank{}.in", rank);
}

inline std::filesystem::path rank_result_file(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank{}.out", rank);
}

/// Exists while the rank that will write `result_file` is inside a scenario: an end of the process
/// is then the doing of the code that is judged, whatever its exit code.
inline std::filesystem::path in_scenario_marker(const std::filesystem::path& result_file) {
  return result_file.string() + ".in_scenario";
}

}  // namespace lab::grading
