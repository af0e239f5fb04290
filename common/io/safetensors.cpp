// The safetensors format: eight bytes with the length of the header, a JSON header, raw numbers.
#include "common/io/safetensors.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/printable.h"

namespace lab {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors holds little-endian numbers");

constexpr uint64_t kAlignment = 64;  // of the first number in the file

float widen_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float widen_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero, or a subnormal: fraction · 2^-24, exact in float32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide_exponent = exponent == 0x1F ? 0xFF : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << 13);
}

// Widens half-precision numbers, two bytes each.
void widen_all(const std::byte* source, const std::string& dtype, std::span<float> values) {
  const auto widen = dtype == "F16" ? widen_f16 : widen_bf16;
  for (float& value : values) {
    uint16_t bits = 0;
    std::memcpy(&bits, source, sizeof(bits));
    source += sizeof(bits);
    value = widen(bits);
  }
}

std::string make_header(std::span<const NamedTensor> tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, value] : tensors) {
    require(name != kMetadataKey && !header.contains(name),
            "cannot store two tensors under the name \"{}\"", name);
    const uint64_t end = offset + value.bytes();
    header[name] = {{"dtype", "F32"}, {"shape", value.shape()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  // Text from elsewhere, such as a path or an error message, need not be UTF-8; JSON must be.
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const uint64_t padded = (sizeof(uint64_t) + text.size() + kAlignment - 1) / kAlignment;
  text.resize(padded * kAlignment - sizeof(uint64_t), ' ');  // spaces are part of the format
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const Metadata& metadata) {
  const std::string header = make_header(tensors, metadata);
  const uint64_t length = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const NamedTensor& tensor : tensors)
    file.write(std::as_bytes(tensor.value.to(Device::kCpu).values()));
  file.commit();
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)), file_(path_) {
  SafetensorsHeader header = read_safetensors_header(file_.bytes(), path_.string());
  metadata_ = std::move(header.metadata);
  data_ = file_.bytes().subspan(header.data_offset);
  for (SafetensorsEntry& entry : header.entries) {
    names_.push_back(entry.name);
    entries_[entry.name] = std::move(entry);
  }
}

bool SafetensorsFile::has(const std::string& name) const { return entries_.contains(name); }

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  require(found != entries_.end(), "{}: has no tensor \"{}\"", path_.string(), name);
  return found->second;
}

const Shape& SafetensorsFile::shape(const std::string& name) const { return entry(name).shape; }

void SafetensorsFile::copy_to(const std::string& name, const Tensor& target) const {
  const SafetensorsEntry& found = entry(name);
  require(found.shape == target.shape(), "{}: tensor \"{}\" has shape {}, expected {}",
          path_.string(), name, printable(to_string(found.shape)), to_string(target.shape()));
  if (target.numel() == 0) return;
  const Tensor on_host = target.device() == Device::kCpu ? target : Tensor::empty(target.shape());
  const std::span<float> values = on_host.values();
  const std::byte* source = data_.data() + found.begin;
  if (found.dtype == "F32")
    std::memcpy(values.data(), source, values.size_bytes());
  else
    widen_all(source, found.dtype, values);
  if (target.device() != Device::kCpu) target.copy_from(on_host);
}

Tensor SafetensorsFile::read(const std::string& name) const {
  Tensor tensor = Tensor::empty(shape(name));
  copy_to(name, tensor);
  return tensor;
}

}  // namespace lab
