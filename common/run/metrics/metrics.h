// metrics.jsonl: one JSON object per line, for every training step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace lab {

/// What is measured in one step.
struct StepRecord {
  int64_t step = 0;   // from 1
  double loss = 0.0;  // of the step's batch, before its update, in nats per token
  /// On the validation split, after the update, if measured. In step 1, if it is not due, the value
  /// from before the first update takes its place, so that the file shows where learning began.
  std::optional<double> val_loss = {};
  double tokens_per_second = 0.0;
  double learning_rate = 0.0;
  double seconds = 0.0;  // of training so far, including before a resume

  bool operator==(const StepRecord&) const = default;
};

/// One line of the file, without the line break; and back: nothing if it is not such a line.
std::string to_json_line(const StepRecord& record);
std::optional<StepRecord> parse_json_line(const std::string& line);

/// The records of a file in order. Lines that cannot be read, such as the last one of a killed run,
/// are left out. A missing file has none.
std::vector<StepRecord> read_metrics(const std::filesystem::path& path);

/// Appends to the file; each line is passed to the system at once, so it can be watched and
/// survives the process.
class MetricsFile {
 public:
  /// Keeps the records of an existing file up to `last_step`, and drops those of steps that will be
  /// repeated. Throws Error if the file cannot be written.
  MetricsFile(const std::filesystem::path& path, int64_t last_step);

  /// Throws Error when the disk is full.
  void append(const StepRecord& record);

  const std::vector<StepRecord>& history() const { return history_; }

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  std::vector<StepRecord> history_;
};

}  // namespace lab
