// FolderLock: flock on the folder itself.
#include "common/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "common/error.h"

namespace lab {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (flock(folder_.get(), LOCK_EX | LOCK_NB) == 0) return;
  require(errno != EWOULDBLOCK,
          "{}: another run is writing into this folder; wait for its end, or choose another --out",
          folder.string());
}

}  // namespace lab
