// What the ranks that save a checkpoint together tell each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/process_group.h"

namespace lab {

/// Rank 0 does `action`; every rank gets what it returns, or throws an Error with the message of
/// what it threw. All ranks call it.
std::string done_by_rank_0(ProcessGroup& group, const std::function<std::string()>& action);

/// The texts of all ranks on rank 0, in their order; nothing on the others. All ranks call it.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text);

/// A file of tensors that a rank has written, or wants written.
struct PartFile {
  struct Entry {
    std::string name;
    Shape shape;
  };
  std::string set;   // "model" or "optimizer"
  std::string name;  // of the file
  std::vector<Entry> tensors;
  uint64_t checksum = 0;  // once it is written
};

/// What a rank has done for a checkpoint.
struct PartReport {
  std::vector<PartFile> files;
  bool written = true;  // or else rank 0 is to do it, with the tensors that this rank will send
  std::string error;    // empty: all went well
};

/// As text, and back.
std::string to_text(const PartReport& report);
PartReport report_from(const std::string& text);

}  // namespace lab
