#include "common/run/checkpoint/run_folder.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "common/error.h"
#include "common/run/checkpoint/checkpoint_folder.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

// Creates a folder and its parents; false if it was there before.
bool create_folder(const fs::path& folder) {
  std::error_code error;
  const bool created = fs::create_directories(folder, error);
  require(!error, "cannot create folder {}: {}; choose another with --out", folder.string(),
          error.message());
  return created;
}

// The largest number that a folder in `runs` begins with.
int largest_number(const fs::path& runs) {
  int largest = 0;
  std::error_code error;
  for (fs::directory_iterator it(runs, error), end; !error && it != end; it.increment(error))
    largest = std::max(largest, std::atoi(it->path().filename().c_str()));
  return largest;
}

bool ended_before_a_record(const fs::path& folder) {
  const fs::path metrics = folder / "metrics.jsonl";
  if (!fs::exists(options_file(folder)) || !fs::exists(metrics) || fs::file_size(metrics) > 0)
    return false;
  return std::distance(fs::directory_iterator(folder), {}) == 2;
}

}  // namespace

fs::path make_run_folder(const fs::path& out, const fs::path& runs, const std::string& name) {
  if (!out.empty()) {
    check_out_is_free(out);
    create_folder(out);
    return out;
  }
  // Another run may take the same number at this moment: the one that creates the folder has it.
  for (int number = largest_number(runs) + 1;; ++number) {
    fs::path folder = runs / fmt::format("{:03}-{}", number, name);
    if (create_folder(folder)) return folder;
  }
}

void check_out_is_free(const fs::path& out) {
  std::error_code error;
  if (!fs::exists(out, error)) return;
  require(fs::is_directory(out, error), "--out {}: not a folder", out.string());
  const bool empty = fs::is_empty(out, error);
  require(!error, "--out {}: {}", out.string(), error.message());
  if (empty || ended_before_a_record(out)) return;
  if (can_resume(out) && list_checkpoints(out).empty())
    fail(
        "--out {}: holds a run that ended without a checkpoint; add --resume to start that run "
        "again, or choose another folder",
        out.string());
  fail("--out {}: not empty; choose another folder, or add --resume to continue the run in it",
       out.string());
}

fs::path options_file(const fs::path& folder) { return folder / "config.ini"; }

bool can_resume(const fs::path& folder) {
  std::error_code ignored;
  return !list_checkpoints(folder).empty() || fs::exists(options_file(folder), ignored);
}

std::string display_path(const fs::path& path) {
  std::error_code error;
  const fs::path relative = fs::proximate(path, error);
  const bool below = !relative.empty() && relative.is_relative() && *relative.begin() != "..";
  return below ? relative.string() : fs::absolute(path, error).string();
}

}  // namespace lab
