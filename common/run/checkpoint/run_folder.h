// The folder of a run.
#pragma once

#include <filesystem>
#include <string>

namespace lab {

/// Makes folder `out`, which must be free (check_out_is_free) if it exists. If `out` is empty,
/// makes the next free `runs`/NNN-`name`. Returns it. Throws Error if that is not possible.
std::filesystem::path make_run_folder(const std::filesystem::path& out,
                                      const std::filesystem::path& runs, const std::string& name);

/// Throws Error unless `out` can become the folder of a new run. Nothing is ever overwritten except
/// the options of a run that ended before it recorded a step, such as one that deadlocked at once.
void check_out_is_free(const std::filesystem::path& out);

/// The options of the run in a folder, as a file that --config accepts.
std::filesystem::path options_file(const std::filesystem::path& folder);

/// Whether --resume can continue the run in `folder`: from a checkpoint or, if the run was killed
/// before its first one, from the start, with the options in its file.
bool can_resume(const std::filesystem::path& folder);

/// A path as a person would type it: relative if it is below the current folder.
std::string display_path(const std::filesystem::path& path);

}  // namespace lab
