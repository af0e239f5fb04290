// Files that are either whole or absent: atomic writing, memory-mapped reading, checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lab {

/// A file mapped read-only into memory; its pages are read when they are first accessed.
class MappedFile {
 public:
  /// Throws Error if the file is missing, unreadable or not a regular file. May be empty.
  explicit MappedFile(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_.get()), size_}; }

 private:
  std::shared_ptr<const std::byte> data_;  // copies share the mapping
  size_t size_ = 0;
};

/// Writes a file that appears under its name only when it is whole: `commit` syncs it to disk and
/// renames it, replacing the target in one step. Until then its data are beside the target, without
/// a name or, where the file system demands one, as TARGET.tmp-PID-N. Without commit (an exception,
/// a kill) the target stays as it was and nothing is left over (except the named temporary file of
/// a killed process). Two processes may write the same target: the last commit wins, and the two
/// never mix.
class AtomicFile {
 public:
  /// Creates missing parent folders. Throws Error (read-only folder, ...).
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Throws Error when the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Overwrites bytes already written, e.g. a header whose counts are known only at the end.
  void overwrite(int64_t offset, std::span<const std::byte> bytes);

  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

/// AtomicFile in one call.
void write_file(const std::filesystem::path& target, std::string_view text);

/// XXH3, 64 bits: detects damage, not malice.
uint64_t checksum(std::span<const std::byte> bytes);

/// Syncs a folder, so that a rename in it survives a power cut.
void sync_folder(const std::filesystem::path& folder);

}  // namespace lab
