// The header of a safetensors file: which tensors it holds, of which type and shape, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/tensor/tensor.h"

namespace lab {

using Metadata = std::map<std::string, std::string>;

/// Its place in the header, among the tensors.
constexpr const char* kMetadataKey = "__metadata__";

/// What the header says about one tensor.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;   // "F32", "F16" or "BF16"
  Shape shape;         // of a scalar: [1]
  uint64_t begin = 0;  // in bytes, from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<SafetensorsEntry> entries;  // in the order of the file
  uint64_t data_offset = 0;               // where the numbers begin, in bytes
};

/// Reads the header of a file that consists of `bytes`. The tensors must lie side by side and fill
/// the file exactly. Throws Error, which begins with `file`, for anything else.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> bytes,
                                          const std::string& file);

}  // namespace lab
