// A file gets its key's name when it is complete (rename); callers of `add` take turns (flock).
#include "common/comm/store/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "common/comm/store/store_rules.h"
#include "common/io/descriptor.h"

namespace lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{10};
constexpr milliseconds kLockPatience{30'000};

[[noreturn]] void fail_io(const char* what, const fs::path& path, int code) {
  fail("cannot {} {} of the store: {}", what, path.string(), std::generic_category().message(code));
}

fs::path lock_file(const fs::path& folder) { return folder / "lock"; }

/// Opened anew by every caller: only then does the lock exclude threads as well as processes.
int open_lock_file(const fs::path& folder) {
  const int descriptor = open(lock_file(folder).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_io("open", lock_file(folder), errno);
  return descriptor;
}

/// Holds the lock of the folder; closing the descriptor releases it.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) : file_(open_lock_file(folder)) {
    const auto deadline = Clock::now() + kLockPatience;
    while (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail_io("lock", lock_file(folder), errno);
      require(Clock::now() < deadline, "{} has been locked for {} s: is a rank stopped?",
              lock_file(folder).string(), kLockPatience / std::chrono::seconds(1));
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

 private:
  Descriptor file_;
};

void write_all(int descriptor, std::string_view text, const fs::path& target) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("write", target, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

/// A new file in the folder; closed, so that network file systems store it.
std::string write_new_file(const fs::path& folder, const std::string& text) {
  std::string name = (folder / "new-XXXXXX").string();
  Descriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) fail_io("create a file in", folder, errno);
  try {
    write_all(file.get(), text, name);
    if (close(file.release()) != 0) fail_io("write", name, errno);
  } catch (...) {
    unlink(name.c_str());
    throw;
  }
  return name;
}

}  // namespace

FileStore::FileStore(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) fail_io("create the folder", folder_, error.value());
  const Descriptor writable(open_lock_file(folder_));
}

/// Bytes other than letters, digits, '-' and '_' become %XX. File systems allow names of 255 bytes:
/// longer ones continue in a folder, marked by '+'.
fs::path FileStore::file_of(const std::string& key) const {
  constexpr size_t kPart = 200;
  store_rules::check_key(key);
  std::string name = "key-";
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    name += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  fs::path path = folder_;
  for (; name.size() > kPart; name.erase(0, kPart)) path /= name.substr(0, kPart) + "+";
  return path / name;
}

void FileStore::set(const std::string& key, const std::string& value) {
  store_rules::check_value(key, value);
  const fs::path target = file_of(key);
  std::error_code error;
  if (target.parent_path() != folder_) fs::create_directories(target.parent_path(), error);
  if (error) fail_io("create a folder in", folder_, error.value());
  // Unlike AtomicFile, does not sync to disk: that takes long, and no job survives its machine.
  const std::string file = write_new_file(folder_, value);
  if (rename(file.c_str(), target.c_str()) == 0) return;
  const int code = errno;
  unlink(file.c_str());
  fail_io("write", target, code);
}

std::optional<std::string> FileStore::get_within(const std::string& key, milliseconds timeout) {
  const auto deadline = store_rules::deadline_after(timeout);
  while (true) {
    const auto now = Clock::now();
    auto value = read(key);
    if (value || now >= deadline) return value;
    std::this_thread::sleep_for(std::min<Clock::duration>(kLook, deadline - now));
  }
}

std::optional<std::string> FileStore::read(const std::string& key) const {
  const fs::path path = file_of(key);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno != ENOENT) fail_io("open", path, errno);
    require(access(folder_.c_str(), F_OK) == 0, "the store in {} is gone: did the job end?",
            folder_.string());
    return std::nullopt;
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_io("read", path, errno);
  std::string value(static_cast<size_t>(status.st_size), '\0');
  size_t have = 0;
  while (have < value.size()) {
    const ssize_t count = ::read(file.get(), value.data() + have, value.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_io("read", path, count < 0 ? errno : EIO);
    have += static_cast<size_t>(count);
  }
  return value;
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  const FolderLock lock(folder_);
  const int64_t sum = store_rules::counter_after(key, read(key), amount);
  set(key, std::to_string(sum));
  return sum;
}

}  // namespace lab
