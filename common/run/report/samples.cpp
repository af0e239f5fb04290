#include "common/run/report/samples.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/error.h"

namespace lab {
namespace {

std::string to_line(const SampleText& sample) {
  const nlohmann::ordered_json json = {{"step", sample.step}, {"text", sample.text}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

std::optional<SampleText> parse_line(const std::string& line) {
  try {
    const auto json = nlohmann::json::parse(line);
    return SampleText{json.at("step").get<int64_t>(), json.at("text").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool ends_within_a_line(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

}  // namespace

std::filesystem::path samples_path(const std::filesystem::path& folder) {
  return folder / "samples.jsonl";
}

void append_sample(const std::filesystem::path& folder, const SampleText& sample) {
  const std::filesystem::path path = samples_path(folder);
  const std::string line =
      fmt::format("{}{}", ends_within_a_line(path) ? "\n" : "", to_line(sample));
  std::ofstream file(path, std::ios::app);
  file << line;
  file.close();
  require(file.good(), "cannot write {}: {}", path.string(), std::strerror(errno));
}

std::vector<SampleText> read_samples(const std::filesystem::path& folder, int64_t up_to_step) {
  const std::filesystem::path path = samples_path(folder);
  std::vector<SampleText> samples;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return samples;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::optional<SampleText> sample = parse_line(line);
    if (!sample) continue;
    while (!samples.empty() && samples.back().step >= sample->step) samples.pop_back();
    samples.push_back(*sample);
  }
  while (!samples.empty() && samples.back().step > up_to_step) samples.pop_back();
  return samples;
}

}  // namespace lab
