#include "common/run/checkpoint/checkpoint_tensors.h"

#include <fmt/format.h>

#include <utility>

#include "common/error.h"
#include "common/io/files.h"
#include "common/io/json_file.h"
#include "common/printable.h"
#include "common/run/checkpoint/checkpoint_folder.h"

namespace lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kSuffix = ".safetensors";
constexpr const char* kIndexSuffix = ".safetensors.index.json";

// An index must not refer to files outside its folder.
bool is_plain_name(const std::string& file) {
  return file.ends_with(kSuffix) && file.find('/') == std::string::npos && file[0] != '.';
}

}  // namespace

std::string part_name(const std::string& group, int stage, int stages) {
  if (stages == 1) return group + kSuffix;
  return fmt::format("{}-{:05}-of-{:05}{}", group, stage + 1, stages, kSuffix);
}

CheckpointTensors::CheckpointTensors(fs::path checkpoint, const std::string& set)
    : checkpoint_(std::move(checkpoint)), path_(checkpoint_ / (set + kSuffix)) {
  std::error_code ignored;
  const std::string index = set + kIndexSuffix;
  if (!fs::exists(path_, ignored) && fs::exists(checkpoint_ / index, ignored)) {
    path_ = checkpoint_ / index;
    verify_checkpoint(checkpoint_, {index});
    read_index();
    return;
  }
  require(fs::exists(path_, ignored), "{} is missing", path_.string());
  const std::string file = path_.filename().string();
  parts_[file] = nullptr;
  verify_checkpoint(checkpoint_, {file});
  parts_[file] = std::make_unique<SafetensorsFile>(path_);
  for (const std::string& name : parts_[file]->names()) part_of_[name] = file;
}

void CheckpointTensors::read_index() {
  const Json json = read_json_file(path_);
  require(json.contains("weight_map") && json["weight_map"].is_object(),
          "{}: has no \"weight_map\" that says which tensor is in which file", path_.string());
  for (const auto& [name, file] : json["weight_map"].items()) {
    require(file.is_string() && is_plain_name(file.get<std::string>()),
            "{}: the file of tensor \"{}\" must be a .safetensors file in the same folder",
            path_.string(), printable(name));
    part_of_[name] = file.get<std::string>();
    parts_[part_of_[name]] = nullptr;
  }
}

SafetensorsFile& CheckpointTensors::open(const std::string& file) {
  std::unique_ptr<SafetensorsFile>& part = parts_.at(file);
  if (part) return *part;
  const std::string path = (checkpoint_ / printable(file)).string();
  const std::string index = path_.filename().string();
  std::error_code ignored;
  require(fs::exists(checkpoint_ / file, ignored), "{} is missing, a part that {} names", path,
          index);
  verify_checkpoint(checkpoint_, {file});
  auto opened = std::make_unique<SafetensorsFile>(checkpoint_ / file);
  for (const std::string& name : opened->names()) {
    const auto listed = part_of_.find(name);
    require(listed != part_of_.end(), "{}: holds a tensor \"{}\" that {} does not name", path,
            printable(name), index);
    require(listed->second == file, "{}: holds tensor \"{}\" a second time; {} has it in {}", path,
            printable(name), index, printable(listed->second));
  }
  for (const auto& [name, its_file] : part_of_)
    require(its_file != file || opened->has(name), "{}: has no tensor \"{}\", though {} says so",
            path, printable(name), index);
  part = std::move(opened);
  return *part;
}

std::vector<std::string> CheckpointTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : part_of_) names.push_back(name);
  return names;
}

void CheckpointTensors::copy_to(const std::string& name, const Tensor& target) {
  const auto found = part_of_.find(name);
  require(found != part_of_.end(), "{}: has no tensor \"{}\"", path_.string(), name);
  open(found->second).copy_to(name, target);
}

double CheckpointTensors::count() {
  double numbers = 0.0;
  for (const auto& [file, part] : parts_) {
    const SafetensorsFile& opened = open(file);
    for (const std::string& name : opened.names()) {
      double numel = 1.0;
      for (const int64_t extent : opened.shape(name)) numel *= static_cast<double>(extent);
      numbers += numel;
    }
  }
  return numbers;
}

void write_tensor_index(const fs::path& checkpoint, const std::string& set,
                        const std::map<std::string, std::string>& part_of, uint64_t total_size) {
  const nlohmann::ordered_json json = {{"metadata", {{"total_size", total_size}}},
                                       {"weight_map", part_of}};
  write_file(checkpoint / (set + kIndexSuffix), json.dump(2) + "\n");
}

}  // namespace lab
