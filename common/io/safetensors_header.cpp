#include "common/io/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/io/json_file.h"
#include "common/printable.h"

namespace lab {
namespace {

using Json = nlohmann::json;
using Entry = SafetensorsEntry;

constexpr uint64_t kMaxHeader = 100'000'000;  // as in the reference implementation
constexpr int kMaxDepth = 3;                  // header > tensor > shape

uint64_t bytes_per_number(const std::string& dtype) {
  if (dtype == "F32") return 4;
  if (dtype == "F16" || dtype == "BF16") return 2;
  return 0;
}

uint64_t read_count(const Json& value, const std::string& file, const std::string& name) {
  require(value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX,
          "{}: tensor \"{}\" has a size or offset that is not a whole number", file,
          printable(name));
  return value.get<uint64_t>();
}

Entry read_entry(const std::string& name, const Json& value, const std::string& file) {
  const auto field = [&](const char* key, bool right_type) -> const Json& {
    require(right_type, "{}: tensor \"{}\" has no valid \"{}\" in the header", file,
            printable(name), key);
    return value[key];
  };
  const auto is = [&](const char* key, Json::value_t type) {
    return value.is_object() && value.contains(key) && value[key].type() == type;
  };
  Entry entry;
  entry.name = name;
  entry.dtype = field("dtype", is("dtype", Json::value_t::string)).get<std::string>();
  const uint64_t width = bytes_per_number(entry.dtype);
  require(width != 0, "{}: tensor \"{}\" has type {}; F32, F16 and BF16 can be read", file,
          printable(name), printable(entry.dtype));

  uint64_t numel = 1;
  for (const Json& extent : field("shape", is("shape", Json::value_t::array))) {
    const uint64_t size = read_count(extent, file, name);
    require(!__builtin_mul_overflow(numel, size, &numel),
            "{}: tensor \"{}\" has an impossibly large shape", file, printable(name));
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  if (entry.shape.empty()) entry.shape = {1};
  const Json& offsets = field("data_offsets", is("data_offsets", Json::value_t::array));
  require(offsets.size() == 2, "{}: tensor \"{}\" needs two data_offsets", file, printable(name));
  entry.begin = read_count(offsets[0], file, name);
  entry.end = read_count(offsets[1], file, name);

  uint64_t expected = 0;
  const bool overflow = __builtin_mul_overflow(numel, width, &expected);
  require(!overflow && entry.begin <= entry.end && entry.end - entry.begin == expected,
          "{}: tensor \"{}\" of shape {} does not fill the bytes that the header gives it", file,
          printable(name), printable(to_string(entry.shape)));
  return entry;
}

Metadata read_metadata(const Json& value, const std::string& file) {
  Metadata metadata;
  require(value.is_object(), "{}: {} is not a JSON object", file, kMetadataKey);
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), "{}: {} \"{}\" is not a string", file, kMetadataKey, printable(key));
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
            file, printable(entry.name), entry.begin, position);
    position = entry.end;
  }
  require(position <= data_size, "{}: cut short: it should have {} more bytes", file,
          position - data_size);
  require(position == data_size, "{}: has {} bytes after its last tensor", file,
          data_size - position);
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::span<const std::byte> bytes,
                                          const std::string& file) {
  uint64_t length = 0;
  require(bytes.size() >= sizeof(length), "{}: cut short or not a safetensors file", file);
  std::memcpy(&length, bytes.data(), sizeof(length));
  require(length <= kMaxHeader, "{}: not a safetensors file: its header would have {} bytes", file,
          length);
  require(length <= bytes.size() - sizeof(length),
          "{}: cut short or not a safetensors file: its header should have {} bytes", file, length);

  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(length), length);
  require(text.starts_with('{'), "{}: not a safetensors file: no JSON header", file);
  const Json json = parse_json(text, kMaxDepth, file);

  SafetensorsHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey)
      header.metadata = read_metadata(value, file);
    else
      header.entries.push_back(read_entry(name, value, file));
  }
  header.data_offset = sizeof(length) + length;
  check_regions(header.entries, bytes.size() - header.data_offset, file);
  return header;
}

}  // namespace lab
