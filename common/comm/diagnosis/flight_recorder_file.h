// FlightRecordFile: the memory of a flight record, mapped from a file or not.
#pragma once

#include <filesystem>
#include <utility>

#include "common/comm/diagnosis/flight_record_layout.h"

namespace lab {

/// Owns the mapping, not the file, which outlives it.
class FlightRecordFile {
 public:
  /// All zeros. `path` empty: memory of this process only. Throws Error: disk full, no folder, ...
  static FlightRecordFile create(const std::filesystem::path& path);
  /// For reading only. Throws Error if the file is absent or not a flight record.
  static FlightRecordFile open(const std::filesystem::path& path);

  ~FlightRecordFile();
  FlightRecordFile(FlightRecordFile&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::move(other.temporary_)),
        layout_(std::exchange(other.layout_, nullptr)) {}
  FlightRecordFile& operator=(FlightRecordFile&&) = delete;

  /// Gives the created file its name, once its contents can be read.
  void publish();

  FlightRecordLayout& layout() { return *layout_; }
  const FlightRecordLayout& layout() const { return *layout_; }

 private:
  FlightRecordFile() = default;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // name until `publish`
  FlightRecordLayout* layout_ = nullptr;
};

}  // namespace lab
