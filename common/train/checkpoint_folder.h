// Checkpoint folders: published whole or not at all, verified by checksums, found by scanning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lab {

/// How many checkpoints a run keeps: the newest, and the one before it in case that gets lost.
inline constexpr size_t kCheckpointsKept = 2;

/// "checkpoint-000200".
std::string checkpoint_name(int64_t step);

/// The complete checkpoints of a run, oldest first. Empty if the folder does not exist.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run);

/// `folder` itself if it holds a model, else the newest checkpoint in it: programs accept a run's
/// folder in place of a checkpoint's. Throws Error if it is neither.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder);

/// Makes the checkpoint of `step`. `fill` writes its files into a folder with a temporary name
/// (with AtomicFile or write_file, which sync them); checksums.json is added and the folder
/// renamed. Only then are checkpoints older than the last `kCheckpointsKept` removed. If anything
/// fails, the temporary folder is removed and the older checkpoints stay. Returns the new folder.
std::filesystem::path publish_checkpoint(
    const std::filesystem::path& run, int64_t step,
    const std::function<void(const std::filesystem::path& folder)>& fill);

/// Compares files with checksums.json: those named, or all that it lists. A folder without
/// checksums.json (a foreign one) passes. Throws Error naming the file that is missing or damaged.
void verify_checkpoint(const std::filesystem::path& checkpoint,
                       const std::vector<std::string>& files = {});

/// Removes what a killed process left half written.
void remove_unfinished_checkpoints(const std::filesystem::path& run);

}  // namespace lab
