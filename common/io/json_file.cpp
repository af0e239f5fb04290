// Small helpers for files in JSON.
#include "common/io/json_file.h"

#include <charconv>
#include <stdexcept>
#include <utility>

#include "common/error.h"
#include "common/io/files.h"
#include "common/printable.h"

namespace lab {

using Json = nlohmann::json;

Json read_json_file(const std::filesystem::path& path) {
  constexpr size_t kMaxSize = size_t{16} << 20;
  constexpr int kMaxDepth = 32;
  const MappedFile file(path);
  require(file.bytes().size() <= kMaxSize, "{}: far too large for a JSON file of this kind",
          path.string());
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    require(depth <= kMaxDepth, "{}: nested too deeply", path.string());
    return true;
  };
  try {
    Json json = Json::parse(file.text(), check_depth);
    require(json.is_object(), "{}: not a JSON object", path.string());
    return json;
  } catch (const Json::exception&) {
    fail("{}: not valid JSON, the file is damaged", path.string());
  }
}

int64_t whole_number(const Json& object, const std::string& key, int64_t least, int64_t most) {
  require(object.is_object() && object.contains(key), "\"{}\" is missing", key);
  const Json& value = object[key];
  // nlohmann would silently convert what does not fit.
  const bool fits = value.is_number_unsigned() ? std::in_range<int64_t>(value.get<uint64_t>())
                                               : value.is_number_integer();
  require(fits && value >= least && value <= most, "\"{}\" is {}, not a whole number from {} to {}",
          key, printable(dumped(value)), least, most);
  return value.get<int64_t>();
}

std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double result = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

std::string to_hex(uint64_t value) { return fmt::format("{:016x}", value); }

uint64_t from_hex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 16)
    throw std::invalid_argument("not 16 hexadecimal digits");
  return value;
}

}  // namespace lab
