// The safetensors format: named tensors in one file, as Hugging Face reads and writes them.
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/io/files.h"
#include "common/io/safetensors_header.h"
#include "common/tensor/tensor.h"

namespace lab {

struct NamedTensor {
  std::string name;
  Tensor value;
};

/// Writes `tensors` (contiguous, on the CPU) in the given order, and string metadata, atomically.
/// Bytes that are not valid UTF-8 become U+FFFD.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata = {});

/// A safetensors file, open for reading: its header is read and checked at once, the numbers of a
/// tensor only on request. F32, F16 and BF16 are accepted, the latter two widened to float32; a
/// scalar (shape []) becomes shape [1]. Every offset, size and shape is checked against the file
/// before memory is allocated: truncated or foreign files give an Error that says what is wrong.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const Metadata& metadata() const { return metadata_; }
  /// In the order of the file.
  const std::vector<std::string>& names() const { return names_; }

  bool has(const std::string& name) const;
  /// These throw Error naming the file if it has no tensor of that name, or one of another shape.
  const Shape& shape(const std::string& name) const;
  Tensor read(const std::string& name) const;
  void copy_to(const std::string& name, const Tensor& target) const;

 private:
  const SafetensorsEntry& entry(const std::string& name) const;

  std::filesystem::path path_;
  MappedFile file_;
  std::span<const std::byte> data_;
  Metadata metadata_;
  std::vector<std::string> names_;
  std::map<std::string, SafetensorsEntry> entries_;
};

}  // namespace lab
