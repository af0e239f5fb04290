// ScratchFolder: a private temporary folder that does not outlive its owner.
#pragma once

#include <filesystem>

namespace lab {

/// Created under the system's temporary folder, removed with all its contents by the destructor. If
/// its process is killed first, the next ScratchFolder of the same user removes what is left (each
/// folder is locked by its owner, and the lock ends with the process).
class ScratchFolder {
 public:
  /// Throws Error if the temporary folder is not writable.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace lab
