// samples.jsonl: what the model wrote during training, one JSON object per line.
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
  std::string text;  // including the prompt; bytes that are not valid UTF-8 are replaced on writing

  bool operator==(const SampleText&) const = default;
};

/// The file of a run: FOLDER/samples.jsonl.
std::filesystem::path samples_path(const std::filesystem::path& folder);

/// Appends to the folder's samples; the line is passed to the system at once. A line that a killed
/// run left unfinished stays a separate line. Throws Error if the file cannot be written.
void append_sample(const std::filesystem::path& folder, const SampleText& sample);

/// The samples of the steps up to `up_to_step`, by step. A missing file has none. Lines that cannot
/// be read are left out. A later line replaces all earlier ones of its step or later steps: a
/// resumed run has repeated those.
std::vector<SampleText> read_samples(const std::filesystem::path& folder,
                                     int64_t up_to_step = std::numeric_limits<int64_t>::max());

}  // namespace lab
