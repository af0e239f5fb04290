// Parcel as a file.
#include "tests/grading/parcel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/io/files.h"

namespace lab::grading {

void Parcel::set(const std::string& name, const std::vector<double>& numbers) {
  texts_[name] = fmt::format("{}", fmt::join(numbers, " "));  // fmt writes digits until exact
}

void Parcel::set(const std::string& name, const TokenBatch& batch) {
  std::vector<double> numbers{static_cast<double>(batch.batch), static_cast<double>(batch.length)};
  numbers.insert(numbers.end(), batch.tokens.begin(), batch.tokens.end());
  set(name, numbers);
}

void Parcel::set(const std::string& name, const Parcel& part) {
  for (const auto& [entry, value] : part.tensors_) tensors_[name + "/" + entry] = value;
  for (const auto& [entry, value] : part.texts_) texts_[name + "/" + entry] = value;
}

Parcel Parcel::part(const std::string& name) const {
  Parcel part;
  const std::string prefix = name + "/";
  const auto take = [&](const auto& from, auto& to) {
    for (auto at = from.lower_bound(prefix); at != from.end() && at->first.starts_with(prefix);
         ++at)
      to[at->first.substr(prefix.size())] = at->second;
  };
  take(tensors_, part.tensors_);
  take(texts_, part.texts_);
  return part;
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
  require(list.size() >= 2, "entry '{}' of the parcel is not a batch of tokens", name);
  return {.batch = static_cast<int64_t>(list[0]),
          .length = static_cast<int64_t>(list[1]),
          .tokens = std::vector<int32_t>(list.begin() + 2, list.end())};
}

bool Parcel::has(const std::string& name) const {
  return tensors_.contains(name) || texts_.contains(name);
}

namespace {

constexpr std::string_view kEnd = "end of parcel";  // a file that was cut off lacks it

void put(std::ostream& file, const void* bytes, size_t size) {
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}

void put(std::ostream& file, const std::string& text) {
  const uint64_t size = text.size();
  put(file, &size, sizeof size);
  put(file, text.data(), size);
}

/// Takes values off the front of a file's bytes, each checked against what is left.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  void get(void* target, size_t size) {
    require(size <= bytes_.size(), "it is cut off");
    if (size > 0) std::memcpy(target, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  uint64_t count() {
    uint64_t count = 0;
    get(&count, sizeof count);
    require(count <= bytes_.size(), "it is cut off");
    return count;
  }
  std::string text() {
    std::string text(count(), ' ');
    get(text.data(), text.size());
    return text;
  }
  bool empty() const { return bytes_.empty(); }
  Tensor tensor() {
    Shape shape(count());
    constexpr uint64_t kMost = uint64_t{1} << 40;  // above what any file holds
    uint64_t elements = 1;
    for (int64_t& size : shape) {
      get(&size, sizeof size);
      require(size >= 0 && static_cast<uint64_t>(size) <= kMost / std::max<uint64_t>(1, elements),
              "it is cut off");
      elements *= static_cast<uint64_t>(size);
    }
    require(elements <= bytes_.size(), "it is cut off");
    const Tensor tensor = Tensor::empty(shape);
    get(tensor.data(), elements * sizeof(float));
    return tensor;
  }

 private:
  std::span<const std::byte> bytes_;
};

Parcel next_parcel(Reader& reader) {
  Parcel parcel;
  uint64_t counts[2] = {};
  reader.get(&counts, sizeof counts);
  for (uint64_t i = 0; i < counts[0]; ++i) {
    const std::string name = reader.text();
    parcel.set_text(name, reader.text());
  }
  for (uint64_t i = 0; i < counts[1]; ++i) {
    const std::string name = reader.text();
    parcel.set(name, reader.tensor());
  }
  require(reader.text() == kEnd, "it is cut off");
  return parcel;
}

}  // namespace

void Parcel::append(const std::filesystem::path& path) const {
  std::vector<char> buffer(size_t{1} << 18);  // most tensors are small: one call for many
  std::ofstream file;
  file.rdbuf()->pubsetbuf(buffer.data(), static_cast<std::streamsize>(buffer.size()));
  file.open(path, std::ios::binary | std::ios::app);
  const uint64_t counts[] = {texts_.size(), tensors_.size()};
  put(file, &counts, sizeof counts);
  for (const auto& [name, text] : texts_) {
    put(file, name);
    put(file, text);
  }
  for (const auto& [name, tensor] : tensors_) {
    put(file, name);
    const uint64_t dimensions = tensor.shape().size();
    put(file, &dimensions, sizeof dimensions);
    put(file, tensor.shape().data(), dimensions * sizeof(int64_t));
    const Tensor numbers = tensor.to(Device::kCpu);
    put(file, numbers.data(), static_cast<size_t>(numbers.numel()) * sizeof(float));
  }
  put(file, std::string(kEnd));
  file.close();
  require(file.good(), "cannot write {}: is the disk full?", path.string());
}

void Parcel::write(const std::filesystem::path& path) const {
  const std::string temporary = path.string() + ".part";
  std::filesystem::remove(temporary);
  append(temporary);
  std::filesystem::rename(temporary, path);
}

Parcel Parcel::read(const std::filesystem::path& path) {
  const MappedFile file(path);
  Reader reader(file.bytes());
  Parcel whole;
  for (bool first = true; first || !reader.empty(); first = false) {
    try {
      Parcel next = next_parcel(reader);
      for (auto& [name, text] : next.texts_) whole.texts_[name] = std::move(text);
      for (auto& [name, tensor] : next.tensors_) whole.tensors_[name] = tensor;
    } catch (const Error& error) {
      if (!first) break;  // an incomplete append
      fail("{}: not a parcel: {}", path.string(), error.what());
    }
  }
  return whole;
}

}  // namespace lab::grading
