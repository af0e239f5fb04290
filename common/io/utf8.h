// Is this text valid UTF-8, and what to show if it is not?
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lab {

/// The position of the first byte in `text` that belongs to no character; text.size() if there is
/// none. Overlong forms, surrogates and code points above U+10FFFF are invalid (RFC 3629).
size_t find_invalid_utf8(std::string_view text);

/// The text with U+FFFD in place of every byte that belongs to no character.
std::string replace_invalid_utf8(std::string_view text);

/// Whether `text`, at most a few bytes, is the beginning of an unfinished character.
bool is_unfinished_utf8(std::string_view text);

}  // namespace lab
