// CheckpointTensors: the tensors of a checkpoint, in one file or in several with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/io/safetensors.h"

namespace lab {

/// "model-00002-of-00003.safetensors", the part of a stage; "model.safetensors" for a single stage.
/// Read in the order of their names, the parts hold the same numbers, in the same order, as the
/// file of a single process.
std::string part_name(const std::string& group, int stage, int stages);

/// Reads one set of tensors of a checkpoint, ours or a foreign one: either NAME.safetensors, or
/// parts of any number and NAME.safetensors.index.json, which says what is where ("weight_map", as
/// Hugging Face writes it). A part is opened when its first tensor is requested, and then compared
/// with checksums.json, if there is one, and with the index.
///
/// All throw Error naming the file: missing, damaged; a tensor that is not where the index says, or
/// in two files.
class CheckpointTensors {
 public:
  CheckpointTensors(std::filesystem::path checkpoint, const std::string& set);

  /// The file that names all tensors, for error messages.
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const;
  /// The tensor must have the shape of `target`.
  void copy_to(const std::string& name, const Tensor& target);
  /// The count of numbers in all tensors; opens all parts.
  double count();

 private:
  void read_index();
  SafetensorsFile& open(const std::string& file);

  std::filesystem::path checkpoint_;
  std::filesystem::path path_;
  std::map<std::string, std::string> part_of_;  // tensor to file
  std::map<std::string, std::unique_ptr<SafetensorsFile>> parts_;
};

/// Writes NAME.safetensors.index.json. `total_size` in bytes.
void write_tensor_index(const std::filesystem::path& checkpoint, const std::string& set,
                        const std::map<std::string, std::string>& part_of, uint64_t total_size);

}  // namespace lab
