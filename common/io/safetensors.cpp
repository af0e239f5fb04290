// The safetensors format: eight bytes with the length of the header, a JSON header, raw numbers.
#include "common/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/io/files.h"
#include "common/tensor/error.h"

namespace lab {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "safetensors holds little-endian numbers");

constexpr uint64_t kMaxHeader = 100'000'000;  // as in the reference implementation
constexpr uint64_t kAlignment = 64;           // of the first number in the file
constexpr int kMaxDepth = 3;                  // header > tensor > shape
constexpr const char* kMetadataKey = "__metadata__";

// What the header says about one tensor.
struct Entry {
  std::string name;
  std::string dtype;
  Shape shape;
  uint64_t numel = 0;
  uint64_t begin = 0;  // in bytes, from the end of the header
  uint64_t end = 0;
};

uint64_t bytes_per_number(const std::string& dtype) {
  if (dtype == "F32") return 4;
  if (dtype == "F16" || dtype == "BF16") return 2;
  return 0;
}

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

// Parses the header; refuses deep nesting and duplicate names before they cost memory.
Json parse_header(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case Json::parse_event_t::array_start:
        require(depth < kMaxDepth, "{}: not a safetensors file: its header is nested too deeply",
                file);
        break;
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        require(keys.back().insert(key).second, "{}: its header has \"{}\" twice", file, key);
        break;
      }
      default:
        break;
    }
    return true;
  };
  try {
    Json header = Json::parse(text, check);
    require(header.is_object(), "{}: not a safetensors file: its header is not a JSON object",
            file);
    return header;
  } catch (const Json::exception&) {
    fail("{}: not a safetensors file, or damaged: its header is not valid JSON", file);
  }
}

uint64_t read_count(const Json& value, const std::string& file, const std::string& name) {
  require(value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX,
          "{}: tensor \"{}\" has a size or offset that is not a whole number", file, name);
  return value.get<uint64_t>();
}

Entry read_entry(const std::string& name, const Json& value, const std::string& file) {
  const auto field = [&](const char* key, bool right_type) -> const Json& {
    require(right_type, "{}: tensor \"{}\" has no valid \"{}\" in the header", file, name, key);
    return value[key];
  };
  const auto is = [&](const char* key, Json::value_t type) {
    return value.is_object() && value.contains(key) && value[key].type() == type;
  };
  Entry entry;
  entry.name = name;
  entry.dtype = field("dtype", is("dtype", Json::value_t::string)).get<std::string>();
  const uint64_t width = bytes_per_number(entry.dtype);
  require(width != 0, "{}: tensor \"{}\" has type {}; F32, F16 and BF16 can be read", file, name,
          entry.dtype);

  entry.numel = 1;
  for (const Json& extent : field("shape", is("shape", Json::value_t::array))) {
    const uint64_t size = read_count(extent, file, name);
    require(!__builtin_mul_overflow(entry.numel, size, &entry.numel),
            "{}: tensor \"{}\" has an impossibly large shape", file, name);
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  if (entry.shape.empty()) entry.shape = {1};
  const Json& offsets = field("data_offsets", is("data_offsets", Json::value_t::array));
  require(offsets.size() == 2, "{}: tensor \"{}\" needs two data_offsets", file, name);
  entry.begin = read_count(offsets[0], file, name);
  entry.end = read_count(offsets[1], file, name);

  uint64_t expected = 0;
  const bool overflow = __builtin_mul_overflow(entry.numel, width, &expected);
  require(!overflow && entry.begin <= entry.end && entry.end - entry.begin == expected,
          "{}: tensor \"{}\" of shape {} does not fill the bytes that the header gives it", file,
          name, to_string(entry.shape));
  return entry;
}

Metadata read_metadata(const Json& value, const std::string& file) {
  Metadata metadata;
  require(value.is_object(), "{}: {} is not a JSON object", file, kMetadataKey);
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), "{}: {} \"{}\" is not a string", file, kMetadataKey, key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// The tensors must lie side by side and fill the file exactly.
void check_regions(std::vector<Entry>& entries, uint64_t data_size, const std::string& file) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const Entry& entry : entries) {
    require(entry.begin == position, "{}: tensor \"{}\" begins at byte {} of the data, not at {}",
            file, entry.name, entry.begin, position);
    position = entry.end;
  }
  require(position <= data_size, "{}: cut short: it should have {} more bytes", file,
          position - data_size);
  require(position == data_size, "{}: has {} bytes behind its last tensor", file,
          data_size - position);
}

Tensor read_tensor(const Entry& entry, const std::byte* data) {
  Tensor tensor = Tensor::empty(entry.shape);
  const std::span<float> values = tensor.values();
  const std::byte* source = data + entry.begin;
  if (values.empty()) return tensor;
  if (entry.dtype == "F32") {
    std::memcpy(values.data(), source, values.size_bytes());
    return tensor;
  }
  const auto widen = entry.dtype == "F16" ? widen_f16 : widen_bf16;
  for (float& value : values) {
    uint16_t bits = 0;
    std::memcpy(&bits, source, sizeof(bits));
    source += sizeof(bits);
    value = widen(bits);
  }
  return tensor;
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
  std::string text = header.dump();
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
  for (const NamedTensor& tensor : tensors) file.write(std::as_bytes(tensor.value.values()));
  file.commit();
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  const MappedFile mapped(path);
  const std::span<const std::byte> bytes = mapped.bytes();
  const std::string file = path.string();

  uint64_t length = 0;
  require(bytes.size() >= sizeof(length), "{}: cut short or not a safetensors file", file);
  std::memcpy(&length, bytes.data(), sizeof(length));
  require(length <= kMaxHeader, "{}: not a safetensors file: its header would have {} bytes", file,
          length);
  require(length <= bytes.size() - sizeof(length),
          "{}: cut short or not a safetensors file: its header should have {} bytes", file, length);

  const std::string_view header_text = mapped.text().substr(sizeof(length), length);
  require(header_text.starts_with('{'), "{}: not a safetensors file: no JSON header", file);
  const Json header = parse_header(header_text, file);

  Safetensors result;
  result.path = path;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey)
      result.metadata = read_metadata(value, file);
    else
      entries.push_back(read_entry(name, value, file));
  }
  const std::span<const std::byte> data = bytes.subspan(sizeof(length) + length);
  check_regions(entries, data.size(), file);
  for (const Entry& entry : entries) result.tensors[entry.name] = read_tensor(entry, data.data());
  return result;
}

Tensor Safetensors::at(const std::string& name) const {
  const auto found = tensors.find(name);
  require(found != tensors.end(), "{}: has no tensor \"{}\"", path.string(), name);
  return found->second;
}

Tensor Safetensors::at(const std::string& name, const Shape& shape) const {
  const Tensor tensor = at(name);
  require(tensor.shape() == shape, "{}: tensor \"{}\" has shape {}, expected {}", path.string(),
          name, to_string(tensor.shape()), to_string(shape));
  return tensor;
}

}  // namespace lab
