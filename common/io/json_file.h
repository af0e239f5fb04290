// Small helpers for files in JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lab {

/// Parses the text of `file`. Throws Error, whose message begins with `file`, for text that is not
/// JSON, would cost much memory or is ambiguous: objects and arrays nested more than `max_depth`
/// deep, an array of more than 10,000 values, a repeated key.
nlohmann::json parse_json(std::string_view text, int max_depth, const std::string& file);

/// Reads a small JSON file whose top level is an object. Throws Error naming the file: missing,
/// larger than 16 MiB, nested more than 32 deep, or refused by parse_json.
nlohmann::json read_json_file(const std::filesystem::path& path);

/// The whole number in `object[key]`. Throws Error naming the key if it is missing, not a whole
/// number, or not between `least` and `most`.
int64_t whole_number(const nlohmann::json& object, const std::string& key, int64_t least,
                     int64_t most);

/// A value on one line, whatever bytes its texts have.
std::string dumped(const nlohmann::json& value);

/// The double whose shortest decimal form is that of `value`: 1e-06 instead of 9.99999997e-07.
double shortest(float value);

/// 16 hexadecimal digits, and back, because not every JSON reader keeps 64 bits of a number.
/// `from_hex` throws std::invalid_argument.
std::string to_hex(uint64_t value);
uint64_t from_hex(const std::string& text);

}  // namespace lab
