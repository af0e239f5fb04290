// Validation by the table of well-formed byte sequences, Unicode 15.0, table 3-7.
#include "common/io/utf8.h"

#include <cstdint>
#include <cstring>

namespace lab {
namespace {

/// The form of a character with a given first byte.
struct Form {
  size_t length = 0;          // 0: no character begins with this byte
  unsigned char low = 0x80;   // limits of the second byte; the others are 80..BF
  unsigned char high = 0xBF;  //
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

/// How many bytes of `text`, from its start, fit the form of its first byte.
size_t matching_bytes(const Form& form, std::string_view text) {
  size_t count = form.length == 0 ? 0 : 1;
  for (; count < form.length && count < text.size(); ++count) {
    const auto byte = static_cast<unsigned char>(text[count]);
    if (byte < (count == 1 ? form.low : 0x80) || byte > (count == 1 ? form.high : 0xBF)) break;
  }
  return count;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;  // most text is ASCII: look at eight bytes at once
    if (at + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080U) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    const Form form = form_of(static_cast<unsigned char>(text[at]));
    if (form.length == 0 || matching_bytes(form, text.substr(at)) < form.length) return at;
    at += form.length;
  }
  return text.size();
}

bool is_unfinished_utf8(std::string_view text) {
  if (text.empty()) return false;
  const Form form = form_of(static_cast<unsigned char>(text.front()));
  return text.size() < form.length && matching_bytes(form, text) == text.size();
}

}  // namespace lab
