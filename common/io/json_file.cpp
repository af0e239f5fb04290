#include "common/io/json_file.h"

#include <charconv>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/io/files.h"
#include "common/printable.h"

namespace lab {

using Json = nlohmann::json;

namespace {

/// Sees all of a text before any of it is stored. (A callback of Json::parse could check the same,
/// but takes time that grows with the square of the number of keys.)
class Check final : public nlohmann::json_sax<Json> {
 public:
  Check(int max_depth, const std::string& file) : max_depth_(max_depth), file_(file) {}

  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(int64_t /*value*/) override { return value(); }
  bool number_unsigned(uint64_t /*value*/) override { return value(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return value(); }
  bool string(std::string& /*value*/) override { return value(); }
  bool binary(Json::binary_t& /*value*/) override { return value(); }
  bool start_object(size_t /*elements*/) override { return open(); }
  bool start_array(size_t /*elements*/) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    const bool is_new = open_.back().keys.insert(name).second;
    require(is_new, "{}: has \"{}\" twice", file_, printable(name));
    return true;
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    return false;
  }

 private:
  struct Container {
    std::set<std::string> keys;  // of an object
    int64_t values = 0;
  };

  bool value() {
    constexpr int64_t kMaxArray = 10'000;
    if (open_.empty()) return true;
    Container& parent = open_.back();
    require(!parent.keys.empty() || ++parent.values <= kMaxArray,
            "{}: has an array of more than {} values", file_, kMaxArray);
    return true;
  }
  bool open() {
    value();
    require(static_cast<int>(open_.size()) < max_depth_, "{}: nested too deeply", file_);
    open_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  int max_depth_;
  const std::string& file_;
  std::vector<Container> open_;
};

}  // namespace

Json parse_json(std::string_view text, int max_depth, const std::string& file) {
  Check check(max_depth, file);
  require(Json::sax_parse(text, &check), "{}: not valid JSON: another kind of file, or damaged",
          file);
  return Json::parse(text);
}

Json read_json_file(const std::filesystem::path& path) {
  constexpr size_t kMaxSize = size_t{16} << 20;
  constexpr int kMaxDepth = 32;
  const MappedFile file(path);
  require(file.bytes().size() <= kMaxSize, "{}: far too large for a JSON file of this kind",
          path.string());
  Json json = parse_json(file.text(), kMaxDepth, path.string());
  require(json.is_object(), "{}: not a JSON object", path.string());
  return json;
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
