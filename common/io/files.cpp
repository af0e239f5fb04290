#include "common/io/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "common/error.h"
#include "common/io/descriptor.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

/// Throws Error for a system call that failed with `code`.
[[noreturn]] void fail_io(const char* what, const fs::path& path, int code) {
  if (code == ENOSPC || code == EDQUOT) fail("disk full while writing {}", path.string());
  fail("cannot {} {}: {}", what, path.string(), std::generic_category().message(code));
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// Tries target.tmp-PID-0, -1, ... until `make(name)` does not fail with EEXIST. Returns that name;
/// `code` is 0 or the error of `make`.
template <typename Make>
fs::path make_temporary(const fs::path& target, int& code, const Make& make) {
  for (int n = 0;; ++n) {
    fs::path name = target;
    name += fmt::format(".tmp-{}-{}", getpid(), n);
    code = make(name) ? 0 : errno;
    if (code != EEXIST) return name;
  }
}

/// A file without a name, which the kernel removes when the process dies; -1 where the file system
/// has no such files (NFS, for example).
int open_unnamed(const fs::path& folder) {
  if (access("/proc/self/fd", X_OK) != 0) return -1;  // needed to name the file later
  return open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
}

/// Writes all of `bytes` at `offset`.
void write_all(int descriptor, std::span<const std::byte> bytes, int64_t offset,
               const fs::path& target) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_io("write", target, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) {
  // Non-blocking, because opening a named pipe would otherwise wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) fail_io("open", path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_io("read", path, errno);
  require(S_ISREG(status.st_mode), "cannot read {}: not a regular file", path.string());
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;  // an empty mapping is not allowed
  void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail_io("map", path, errno);
  data_.reset(static_cast<const std::byte*>(address),
              [address, size = size_](const std::byte*) { munmap(address, size); });
}

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  const fs::path folder = folder_of(target_);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_io("create folder", folder, error.value());
  const fs::file_status status = fs::status(target_, error);
  require(!fs::exists(status) || fs::is_regular_file(status),
          "cannot write {}: it exists and is not a regular file", target_.string());

  descriptor_ = open_unnamed(folder);
  if (descriptor_ >= 0) return;
  int code = 0;
  fs::path name = make_temporary(target_, code, [this](const fs::path& candidate) {
    descriptor_ = open(candidate.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    return descriptor_ >= 0;
  });
  if (code != 0) fail_io("create a file in", folder, code);
  temporary_ = std::move(name);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  require(descriptor_ >= 0, "cannot write {}: already committed", target_.string());
  write_all(descriptor_, bytes, size_, target_);
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::overwrite(int64_t offset, std::span<const std::byte> bytes) {
  require(descriptor_ >= 0, "cannot write {}: already committed", target_.string());
  require(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= size_,
          "cannot overwrite {} bytes at {} of {}: it has {} bytes", bytes.size(), offset,
          target_.string(), size_);
  write_all(descriptor_, bytes, offset, target_);
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, "cannot write {}: already committed", target_.string());
  if (fsync(descriptor_) != 0) fail_io("write", target_, errno);
  if (temporary_.empty()) {
    const std::string unnamed = fmt::format("/proc/self/fd/{}", descriptor_);
    int code = 0;
    fs::path name = make_temporary(target_, code, [&](const fs::path& candidate) {
      return linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, candidate.c_str(), AT_SYMLINK_FOLLOW) == 0;
    });
    if (code != 0) fail_io("create a file beside", target_, code);
    temporary_ = std::move(name);
  }
  // Some network file systems report a full disk only here.
  if (close(std::exchange(descriptor_, -1)) != 0) fail_io("write", target_, errno);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail_io("replace", target_, errno);
  temporary_.clear();
  sync_folder(folder_of(target_));
}

void write_file(const fs::path& target, std::string_view text) {
  AtomicFile file(target);
  file.write(text);
  file.commit();
}

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) fail_io("open folder", folder, errno);
  // EINVAL: this file system cannot sync folders; nothing can be done about it.
  if (fsync(descriptor.get()) != 0 && errno != EINVAL) fail_io("sync folder", folder, errno);
}

}  // namespace lab
