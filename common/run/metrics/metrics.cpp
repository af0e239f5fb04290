#include "common/run/metrics/metrics.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/io/files.h"

namespace lab {

std::string to_json_line(const StepRecord& record) {
  nlohmann::ordered_json json = {{"step", record.step}, {"loss", record.loss}};
  if (record.val_loss) json["val_loss"] = *record.val_loss;
  json["tokens_per_second"] = record.tokens_per_second;
  json["learning_rate"] = record.learning_rate;
  json["seconds"] = record.seconds;
  return json.dump();
}

std::optional<StepRecord> parse_json_line(const std::string& line) {
  try {
    const auto json = nlohmann::json::parse(line);
    StepRecord record;
    json.at("step").get_to(record.step);
    json.at("loss").get_to(record.loss);
    if (json.contains("val_loss")) record.val_loss = json["val_loss"].get<double>();
    json.at("tokens_per_second").get_to(record.tokens_per_second);
    json.at("learning_rate").get_to(record.learning_rate);
    json.at("seconds").get_to(record.seconds);
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::vector<StepRecord> read_metrics(const std::filesystem::path& path) {
  std::vector<StepRecord> records;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return records;
  // A line has about 150 bytes. Anything after a line longer than this was not written by a run,
  // and a sparse file may have gigabytes of it.
  std::array<char, 4096> line{};
  std::ifstream in(path);
  while (in.getline(line.data(), line.size()))
    if (const auto record = parse_json_line(line.data())) records.push_back(*record);
  return records;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t last_step) : path_(path) {
  history_ = read_metrics(path);
  std::erase_if(history_, [&](const StepRecord& record) { return record.step > last_step; });
  std::string kept;
  for (const StepRecord& record : history_) kept += to_json_line(record) + '\n';
  write_file(path, kept);
  file_.open(path, std::ios::app);
  require(file_.is_open(), "cannot write {}: {}", path.string(), std::strerror(errno));
}

void MetricsFile::append(const StepRecord& record) {
  file_ << to_json_line(record) << '\n' << std::flush;
  require(file_.good(), "cannot write {}: {}", path_.string(), std::strerror(errno));
  history_.push_back(record);
}

}  // namespace lab
