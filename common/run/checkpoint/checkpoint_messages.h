// The messages of ranks that save a checkpoint together.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/process_group.h"

namespace lab {

/// Rank 0 calls `action`; every rank returns its result, or throws an Error with the message of its
/// exception. All ranks call it.
std::string done_by_rank_0(ProcessGroup& group, const std::function<std::string()>& action);

/// The texts of all ranks on rank 0, in the order of ranks; nothing on the others. All ranks call
/// it.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text);

/// A file of tensors that a rank has written, or asks rank 0 to write.
struct PartFile {
  std::string set;                                     // "model" or "optimizer"
  std::string name;                                    // of the file
  std::vector<std::pair<std::string, Shape>> tensors;  // names and shapes
  uint64_t checksum = 0;                               // once the file is written
};

/// What a rank has done for a checkpoint.
struct PartReport {
  std::vector<PartFile> files;
  bool written = true;  // false: rank 0 must do it, with the tensors that this rank will send
  std::string error;    // empty: all went well
};

/// As text, and back.
std::string to_text(const PartReport& report);
PartReport report_from(const std::string& text);

}  // namespace lab
