// The file that is judged, and its results on disk.
#pragma once

#include <filesystem>
#include <string>

#include "tests/grading/task_result.h"

namespace lab::grading {

std::string read_text(const std::filesystem::path& file);

const std::filesystem::path& source_folder();
/// FOLDER/02_name/name.cpp (or .cu) of `labs` or `solutions`, relative to the source folder.
std::filesystem::path source_file(const std::string& place);
std::filesystem::path judged_file();

std::filesystem::path result_file(const std::string& task);
/// Results belong to the file that was judged and to the tests that judged it.
std::string fingerprint();
/// Those that belong to `fingerprint`; "": all that are there.
TaskResults results_of(const std::string& fingerprint);

/// Empty, or why what was built is not what the file says now.
std::string stale();
/// What cmake/run_build.sh has left when this very file does not build; else empty.
std::string build_error();

}  // namespace lab::grading
