// FolderLock: one process at a time writes a folder.
#pragma once

#include <filesystem>

#include "common/io/descriptor.h"

namespace lab {

/// Held as long as the object lives, and never longer than its process. It keeps off others that
/// take it as well, on this machine or, as far as the file system can do that, on others; it leaves
/// no file. Throws Error if somebody else has it; does nothing where the file system has no locks.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  Descriptor folder_;
};

}  // namespace lab
