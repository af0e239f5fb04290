// Walks the fields of a sentencepiece model and the double-array tries of its character maps.
// Fields: https://github.com/google/sentencepiece/blob/v0.1.97/src/sentencepiece_model.proto
// Encoding: https://protobuf.dev/programming-guides/encoding/
#include "common/data/model_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace lab {
namespace {

constexpr int kMaxPieces = 1 << 20;
constexpr uint64_t kPieceField = 1;         // of ModelProto
constexpr uint64_t kTrainerField = 2;       //
constexpr uint64_t kNormalizerField = 3;    //
constexpr uint64_t kDenormalizerField = 5;  //
constexpr uint64_t kCharacterMapField = 2;  // of NormalizerSpec

/// One field of a protocol buffer message. `bytes` is empty for numbers.
struct Field {
  uint64_t number = 0;
  bool has_bytes = false;
  std::string_view bytes;
};

/// Removes a base-128 number from the front of `in`.
std::optional<uint64_t> take_varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Removes a field from the front of `in`; nothing if the message is malformed there.
std::optional<Field> take_field(std::string_view& in) {
  const std::optional<uint64_t> tag = take_varint(in);
  if (!tag || *tag >> 3 == 0) return std::nullopt;
  Field field{*tag >> 3, false, {}};
  uint64_t length = 0;
  switch (*tag & 7) {
    case 0:  // a varint
      if (!take_varint(in)) return std::nullopt;
      break;
    case 1:  // 64 bits
      length = 8;
      break;
    case 2: {  // a length and as many bytes
      const std::optional<uint64_t> value = take_varint(in);
      if (!value) return std::nullopt;
      length = *value;
      field.has_bytes = true;
      break;
    }
    case 5:  // 32 bits
      length = 4;
      break;
    default:  // groups, which these messages do not have
      return std::nullopt;
  }
  if (length > in.size()) return std::nullopt;
  if (field.has_bytes) field.bytes = in.substr(0, length);
  in.remove_prefix(length);
  return field;
}

uint32_t read_u32(std::string_view bytes, size_t index) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[4 * index + i]);
  return value;
}

/// Whether every walk from the root of this double array (darts-clone; 32 bits per unit) stays
/// inside the array, ends, meets at most 32 values (the library has room for no more), and finds
/// only values that are offsets below `text_size`.
bool is_safe_trie(std::string_view trie, size_t text_size) {
  constexpr size_t kMaxDepth = 256;  // bytes of the longest rule; a cycle exceeds it
  constexpr int kMaxValues = 32;
  const size_t units = trie.size() / 4;
  if (trie.size() % 4 != 0 || units == 0) return false;

  // Level by level: the units that can be reached, and how many values each path has met.
  std::map<size_t, int> level = {{0, 0}};
  for (size_t depth = 0; !level.empty(); ++depth) {
    if (depth > kMaxDepth) return false;
    std::map<size_t, int> next;
    for (auto [at, values] : level) {
      const uint32_t unit = read_u32(trie, at);
      const size_t base = at ^ ((unit >> 10) << ((unit & 0x200U) >> 6));
      // A walk looks at the units base ^ byte for every byte.
      if ((base | 0xFF) >= units) return false;
      if (depth > 0 && (unit & 0x100U) != 0) {
        if ((read_u32(trie, base) & 0x7FFFFFFFU) >= text_size || ++values > kMaxValues)
          return false;
      }
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const size_t child = base ^ byte;
        if ((read_u32(trie, child) & 0x800000FFU) != byte) continue;
        int& met = next[child];
        met = std::max(met, values);
      }
    }
    level = std::move(next);
  }
  return true;
}

/// A character map: the size of its trie, the trie, and zero-terminated replacement texts.
bool is_safe_character_map(std::string_view map) {
  if (map.empty()) return true;
  if (map.size() < 4) return false;
  const size_t trie_size = read_u32(map, 0);
  map.remove_prefix(4);
  if (trie_size >= map.size() || map.back() != '\0') return false;
  return is_safe_trie(map.substr(0, trie_size), map.size() - trie_size);
}

bool is_safe_normalizer(std::string_view normalizer) {
  while (!normalizer.empty()) {
    const std::optional<Field> field = take_field(normalizer);
    if (!field) return false;
    if (field->number == kCharacterMapField && field->has_bytes &&
        !is_safe_character_map(field->bytes))
      return false;
  }
  return true;
}

}  // namespace

std::string_view find_model_damage(std::string_view model) {
  int pieces = 0;
  bool has_trainer = false;
  bool has_normalizer = false;
  while (!model.empty()) {
    const std::optional<Field> field = take_field(model);
    if (!field) return "not a sentencepiece model, or truncated";
    if (!field->has_bytes) continue;
    if (field->number == kPieceField && ++pieces > kMaxPieces) return "more than a million pieces";
    has_trainer = has_trainer || field->number == kTrainerField;
    if (field->number == kNormalizerField || field->number == kDenormalizerField) {
      if (!is_safe_normalizer(field->bytes)) return "its character map is damaged";
      has_normalizer = true;
    }
  }
  // Without these, the library would silently use its defaults.
  if (pieces == 0 || !has_trainer || !has_normalizer)
    return "not a sentencepiece model, or truncated";
  return "";
}

}  // namespace lab
