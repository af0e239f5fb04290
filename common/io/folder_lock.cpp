// FolderLock: flock on the folder itself.
#include "common/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace lab {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : path_(folder), folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  require(static_cast<bool>(folder_), "{}: cannot be opened: {}", folder.string(),
          std::strerror(errno));
  if (flock(folder_.get(), LOCK_EX | LOCK_NB) == 0) return;
  require(errno != EWOULDBLOCK,
          "{}: another run is writing into this folder; wait until it ends, or choose another "
          "--out",
          folder.string());
}

void FolderLock::check_place() const {
  struct stat locked {};
  struct stat named {};
  if (fstat(folder_.get(), &locked) != 0) return;
  require(stat(path_.c_str(), &named) == 0 && named.st_dev == locked.st_dev &&
              named.st_ino == locked.st_ino,
          "{}: the folder of this run was removed or moved while it was running", path_.string());
}

}  // namespace lab
