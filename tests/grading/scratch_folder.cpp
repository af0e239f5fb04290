// A locked temporary folder; unlocked ones are leftovers.
#include "tests/grading/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "common/error.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "llama-lab-";

// A folder's lock is taken right after its creation; younger ones are left alone.
constexpr time_t kSecondsUntilLocked = 10;

int open_folder(const fs::path& folder) {
  return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void remove_if_abandoned(const fs::path& folder) {
  const int descriptor = open_folder(folder);
  if (descriptor < 0) return;
  struct stat info = {};
  if (fstat(descriptor, &info) == 0 && info.st_uid == geteuid() &&
      info.st_mtime + kSecondsUntilLocked < time(nullptr) &&
      flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  close(descriptor);
}

void remove_leftovers(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored))
    if (entry.path().filename().string().starts_with(kPrefix)) remove_if_abandoned(entry.path());
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const char* named = std::getenv("TMPDIR");
  const bool empty = named != nullptr && *named == '\0';  // as if it were not set
  const fs::path parent = empty ? fs::path("/tmp") : fs::temp_directory_path(error);
  require(!error, "there is no temporary folder ({}); set TMPDIR to a writable one",
          error.message());
  remove_leftovers(parent);
  std::string name = (parent / (std::string(kPrefix) + "XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr)
    fail("cannot create a folder in {} ({}); set TMPDIR to a writable one", parent.string(),
         std::strerror(errno));
  path_ = name;
  lock_ = open_folder(path_);
  flock(lock_, LOCK_SH | LOCK_NB);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_);
}

}  // namespace lab
