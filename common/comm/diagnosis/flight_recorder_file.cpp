// FlightRecordFile: creates, opens and maps the file of a flight record.
#include "common/comm/diagnosis/flight_recorder_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "common/error.h"
#include "common/io/descriptor.h"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBytes = sizeof(FlightRecordLayout);

[[noreturn]] void fail_io(const char* what, const fs::path& path, int code) {
  if (code == ENOSPC || code == EDQUOT)
    fail("disk full while making the flight record {}", path.string());
  fail("cannot {} the flight record {}: {}", what, path.string(),
       std::generic_category().message(code));
}

/// `file` -1: memory without a file.
FlightRecordLayout* map(int file, int protection, const fs::path& path) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* address = mmap(nullptr, kBytes, protection, flags, file, 0);
  if (address == MAP_FAILED) fail_io("map", path, errno);
  return static_cast<FlightRecordLayout*>(address);
}

}  // namespace

FlightRecordFile FlightRecordFile::create(const fs::path& path) {
  FlightRecordFile made;
  if (path.empty()) {
    made.layout_ = map(-1, PROT_READ | PROT_WRITE, path);
    return made;
  }
  made.path_ = path;
  fs::path temporary = path;
  temporary += fmt::format(".tmp-{}", getpid());
  const Descriptor file(::open(temporary.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_io("make", path, errno);
  made.temporary_ = temporary;
  // Allocates the space now: if the disk filled up later, SIGBUS would kill the process.
  int code = 0;
  do code = posix_fallocate(file.get(), 0, static_cast<off_t>(kBytes));
  while (code == EINTR);
  if (code != 0) fail_io("make", path, code);
  made.layout_ = map(file.get(), PROT_READ | PROT_WRITE, path);
  return made;
}

FlightRecordFile FlightRecordFile::open(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) fail_io("open", path, errno);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_io("read", path, errno);
  require(S_ISREG(status.st_mode) && status.st_size == static_cast<off_t>(kBytes),
          "{} is not a flight record: it has another size", path.string());
  FlightRecordFile opened;
  opened.layout_ = map(file.get(), PROT_READ, path);
  const int64_t rank = opened.layout_->head.load().rank;
  require(opened.layout_->magic.load() == FlightRecordLayout::kMagic && rank >= 0 &&
              rank < kMaxWorldSize,
          "{} is not a flight record, or one of another version of the workbook", path.string());
  return opened;
}

void FlightRecordFile::publish() {
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_io("make", path_, errno);
  temporary_.clear();
}

FlightRecordFile::~FlightRecordFile() {
  if (layout_ != nullptr) munmap(layout_, kBytes);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

}  // namespace lab
