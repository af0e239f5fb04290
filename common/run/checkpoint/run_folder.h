// The folder of a run.
#pragma once

#include <filesystem>
#include <string>

namespace lab {

/// Makes folder `out`, which must not exist or be empty. If `out` is empty, makes the next free
/// `runs`/NNN-`name`. Returns it. Throws Error if that is not possible.
std::filesystem::path make_run_folder(const std::filesystem::path& out,
                                      const std::filesystem::path& runs, const std::string& name);

/// Throws Error unless `out` can become the folder of a new run: nothing is ever overwritten.
void check_out_is_free(const std::filesystem::path& out);

/// Empties a run's folder again if it has no complete checkpoint, as after a run that was killed
/// before its first. Removes what a run writes, and nothing else.
void clear_unfinished_run(const std::filesystem::path& folder);

/// A path as a person would type it: relative if it is below the current folder.
std::string display_path(const std::filesystem::path& path);

}  // namespace lab
