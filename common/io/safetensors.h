// The safetensors format: named tensors in one file, as Hugging Face reads and writes them.
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/tensor/tensor.h"

namespace lab {

struct NamedTensor {
  std::string name;
  Tensor value;
};

using Metadata = std::map<std::string, std::string>;

/// Writes `tensors` (contiguous, on the CPU) in the given order, and string metadata, atomically.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata = {});

struct Safetensors {
  Metadata metadata;
  std::map<std::string, Tensor> tensors;

  /// The tensor of that name and shape; throws Error naming the file if absent or of another shape.
  Tensor at(const std::string& name, const Shape& shape) const;
  Tensor at(const std::string& name) const;

  std::filesystem::path path;  // for messages
};

/// Reads a whole file. F32, F16 and BF16 are accepted, the latter two widened to float32; a scalar
/// (shape []) comes as shape [1]. Every
/// offset, size and shape is checked against the file before memory is allocated: truncated or
/// foreign files give an Error that says what is wrong.
Safetensors read_safetensors(const std::filesystem::path& path);

}  // namespace lab
