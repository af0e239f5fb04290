// Where the harness and the rank programs of one job find each other's files.
#pragma once

#include <fmt/format.h>

#include <filesystem>

namespace lab::grading {

inline std::filesystem::path rank_input_file(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank{}_in.safetensors", rank);
}

inline std::filesystem::path rank_result_file(const std::filesystem::path& folder, int rank) {
  return folder / fmt::format("rank{}_out.safetensors", rank);
}

}  // namespace lab::grading
