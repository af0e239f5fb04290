// Parcel as a safetensors file.
#include "common/grading/parcel.h"

#include <fmt/ranges.h>

#include <cstdlib>

#include "common/io/safetensors.h"
#include "common/tensor/error.h"

namespace lab::grading {

void Parcel::set(const std::string& name, const std::vector<double>& numbers) {
  texts_[name] = fmt::format("{}", fmt::join(numbers, " "));  // fmt writes digits until exact
}

void Parcel::set(const std::string& name, const TokenBatch& batch) {
  std::vector<double> numbers{static_cast<double>(batch.batch), static_cast<double>(batch.length)};
  numbers.insert(numbers.end(), batch.tokens.begin(), batch.tokens.end());
  set(name, numbers);
}

const Tensor& Parcel::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "there is no tensor '{}' in the parcel", name);
  return found->second;
}

const std::string& Parcel::text(const std::string& name) const {
  const auto found = texts_.find(name);
  require(found != texts_.end(), "there is no entry '{}' in the parcel", name);
  return found->second;
}

std::vector<double> Parcel::numbers(const std::string& name) const {
  std::vector<double> numbers;
  const char* at = text(name).c_str();
  for (char* end = nullptr; *at != '\0'; at = end) {
    numbers.push_back(std::strtod(at, &end));
    require(end != at, "entry '{}' of the parcel is not a list of numbers", name);
  }
  return numbers;
}

double Parcel::number(const std::string& name) const {
  const std::vector<double> list = numbers(name);
  require(list.size() == 1, "entry '{}' of the parcel is not one number", name);
  return list[0];
}

TokenBatch Parcel::batch(const std::string& name) const {
  const std::vector<double> list = numbers(name);
  require(list.size() >= 2 && static_cast<double>(list.size() - 2) == list[0] * list[1],
          "entry '{}' of the parcel is not a batch of tokens", name);
  return {.batch = static_cast<int64_t>(list[0]),
          .length = static_cast<int64_t>(list[1]),
          .tokens = std::vector<int32_t>(list.begin() + 2, list.end())};
}

bool Parcel::has(const std::string& name) const {
  return tensors_.contains(name) || texts_.contains(name);
}

void Parcel::write(const std::filesystem::path& path) const {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, value] : tensors_) tensors.push_back({name, value});
  write_safetensors(path, tensors, texts_);
}

Parcel Parcel::read(const std::filesystem::path& path) {
  Safetensors file = read_safetensors(path);
  Parcel parcel;
  parcel.tensors_ = std::move(file.tensors);
  parcel.texts_ = std::move(file.metadata);
  return parcel;
}

}  // namespace lab::grading
