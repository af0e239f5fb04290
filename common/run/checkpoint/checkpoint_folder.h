// Checkpoint folders: published complete or not at all, verified by checksums, found by scanning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lab {

/// How many checkpoints a run keeps: the newest, and the one before it in case the newest is lost.
inline constexpr size_t kCheckpointsKept = 2;

/// "checkpoint-000200".
std::string checkpoint_name(int64_t step);

/// The complete checkpoints of a run, oldest first. Empty if the folder does not exist.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& run);

/// `folder` itself if it holds a model, else the newest checkpoint in it: programs accept a run's
/// folder in place of a checkpoint's. Throws Error if it is neither.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder);

/// XXH3 of files by name, as checksums.json lists them.
using Checksums = std::map<std::string, uint64_t>;

/// A checkpoint being written: a folder of the run with a temporary name, into which files are
/// written (with AtomicFile or write_file, which sync them). The destructor removes it unless it
/// has been published. Throws Error; the older checkpoints stay in any case.
class UnfinishedCheckpoint {
 public:
  UnfinishedCheckpoint(std::filesystem::path run, int64_t step);
  ~UnfinishedCheckpoint();
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint& operator=(const UnfinishedCheckpoint&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  /// Adds checksums.json and gives the folder its name. Only then are checkpoints older than the
  /// last `kCheckpointsKept` removed. `known`: checksums of files that other processes have
  /// computed already. Returns the new folder.
  std::filesystem::path publish(Checksums known = {});

 private:
  std::filesystem::path run_;
  int64_t step_;
  std::filesystem::path folder_;
};

/// The XXH3 checksum of a file.
uint64_t file_checksum(const std::filesystem::path& file);

/// Compares files with checksums.json: those named, or all that it lists. A folder without
/// checksums.json (a foreign one) passes. Throws Error naming the file that is missing, damaged or
/// not listed.
void verify_checkpoint(const std::filesystem::path& checkpoint,
                       const std::vector<std::string>& files = {});

/// Removes half-written leftovers of a killed process.
void remove_unfinished_checkpoints(const std::filesystem::path& run);

}  // namespace lab
