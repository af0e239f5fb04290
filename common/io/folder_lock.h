// FolderLock: only one process at a time writes to a folder.
#pragma once

#include <filesystem>

#include "common/io/descriptor.h"

namespace lab {

/// Held as long as the object lives, and never longer than its process. It keeps out other
/// processes that try to take it, on this machine and, if the file system supports it, on others;
/// it leaves no file. Throws Error if another process holds it, or the folder cannot be read; does
/// nothing where the file system has no locks.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

  /// Throws Error if the folder has been removed, moved or replaced since: files written under its
  /// name would then be elsewhere, and not protected.
  void check_place() const;

 private:
  std::filesystem::path path_;
  Descriptor folder_;
};

}  // namespace lab
