// samples.jsonl: what the model wrote while it learned, one JSON object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace lab {

/// A text that the model continued after a step. Step 0: before the first one.
struct SampleText {
  int64_t step = 0;
  std::string text;  // prompt included; bytes that are no UTF-8 are replaced when it is written

  bool operator==(const SampleText&) const = default;
};

/// Where a run keeps them: FOLDER/samples.jsonl.
std::filesystem::path samples_path(const std::filesystem::path& folder);

/// Appends to the folder's samples; the line is handed to the system at once. What a killed run
/// left of a line stays a line of its own. Throws Error if the file cannot be written.
void append_sample(const std::filesystem::path& folder, const SampleText& sample);

/// The samples of the steps up to `up_to_step`, by step. A missing file has none. Lines that cannot
/// be read are left out. A later line takes the place of all earlier ones of its step or later
/// steps: a resumed run has taken those again.
std::vector<SampleText> read_samples(const std::filesystem::path& folder,
                                     int64_t up_to_step = std::numeric_limits<int64_t>::max());

}  // namespace lab
