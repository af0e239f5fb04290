// The report of a training run: a single, self-contained HTML page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/pipeline/step_timing.h"
#include "common/pipeline/timeline.h"
#include "common/run/metrics/metrics.h"
#include "common/run/report/samples.h"
#include "common/tensor/memory_account.h"

namespace lab {

struct Fact {
  std::string name;   // "layers"
  std::string value;  // "6"
};

/// A part of the configuration.
struct FactGroup {
  std::string title = {};  // "Model"
  std::vector<Fact> facts = {};
};

/// The tensors of a rank in training, in bytes.
struct RankMemory {
  std::string name;     // "p0 stage 1"
  MemoryUse peaks{};    // of each kind, each at its own moment
  int64_t peak = 0;     // of their sum
  int64_t planned = 0;  // what ./workbook plan expects; 0: unknown
};

struct RunReport {
  std::string title = {};     // "007-train": the run's name
  std::string subtitle = {};  // "2 pipelines of 3 stages, 6 microbatches each"; may be empty
  /// Whose code trained: kWhoseLabs (common/run/training/whose_labs.h), which is "solution",
  /// "student" or "mine"; otherwise the report does not mention it.
  std::string whose_labs = {};
  std::vector<FactGroup> facts = {};
  std::vector<StepRecord> metrics = {};     // by step
  std::optional<StepTimeline> timing = {};  // of the last of them: for time and bytes
  std::vector<RankMemory> memory = {};      // by rank; empty: nobody counted
  std::vector<SampleText> samples = {};     // by step
  std::vector<std::string> notes = {};      // "6 ranks share 2 cores: believe the order, ..."
};

/// The page, UTF-8, also well-formed XML. Light and dark, narrow and wide, printable; no script, no
/// external reference. Texts may contain anything. Sections without data are left out. Long curves
/// are thinned out, and of many samples only some are shown: below 2 MB for any run.
std::string report_html(const RunReport& report);

}  // namespace lab
