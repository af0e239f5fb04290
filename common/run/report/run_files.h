// What a training run of pipelines writes for people to look at, apart from metrics and
// checkpoints: samples of text, and a report at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/data/tokenizer.h"
#include "common/model/config.h"
#include "common/run/options/run_plan.h"
#include "common/run/report/run_report.h"
#include "common/run/timeline/timeline_report.h"

namespace lab {

/// Has the newest checkpoint in `folder` write the beginning of a story, and stores it in
/// samples.jsonl under `step`. Does nothing if the plan asks for no story.
void print_sample(const std::filesystem::path& folder, int64_t step, const Tokenizer& tokenizer,
                  const RunPlan& plan);

/// How a run was made.
struct RunFacts {
  const RunPlan& plan;
  const LlamaConfig& model;
  const std::vector<StageSpan>& stages;
  std::string whose_labs;  // see common/run/training/whose_labs.h
  std::vector<RankMemory> memory = {};
};

/// Writes timeline.svg, trace.json and report.html, with the metrics and samples in `folder`, and
/// prints where they are. Without a step, as after the resume of a run that was killed after its
/// last one, it writes report.html only, and only if there is none of the newest checkpoint.
void write_run_report(const std::filesystem::path& folder, const std::optional<StepTimeline>& step,
                      const RunFacts& facts);

}  // namespace lab
