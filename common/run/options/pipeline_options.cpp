#include "common/run/options/pipeline_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>

#include "common/io/files.h"
#include "common/model/split.h"
#include "common/pipeline/validate.h"
#include "common/run/options/main_guard.h"

namespace lab {
namespace {

std::vector<int64_t> parse_counts(const std::string& text) {
  std::vector<int64_t> counts;
  for (const std::string& word : CLI::detail::split(text, ',')) {
    int64_t count = 0;
    if (!CLI::detail::lexical_cast(word, count) || count < 1)
      throw UsageError(fmt::format(
          "--split {}: it takes the layers of each stage, one at least, as in 2,2,2", text));
    counts.push_back(count);
  }
  return counts;
}

}  // namespace

void add_pipeline_options(CLI::App& app, PipelineOptions& options) {
  app.add_option("--split", options.split, "layers of each stage; default: lab 04's split")
      ->type_name("N,N,..")
      ->group("Pipeline");
  app.add_flag("--timeline", options.timeline,
               "show what every rank did in the last step; timeline.svg and trace.json in --out")
      ->group("Pipeline");
  app.add_option("--log-every", options.log_every,
                 "steps from one loss to the next; each costs a message")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str()
      ->group("Run");
}

void check_microbatches(int microbatches, int stages) {
  if (stages > 1 && microbatches > kMaxMicrobatches)
    throw UsageError(fmt::format(
        "--microbatches {}: a wave through several stages takes {} at most; use more --waves",
        microbatches, kMaxMicrobatches));
}

std::vector<StageSpan> choose_stages(const LlamaConfig& config, int stages,
                                     const PipelineOptions& options, SplitFunction split) {
  if (stages > config.layers)
    throw UsageError(
        fmt::format("{} ranks for {} layers: every stage needs a layer; start fewer "
                    "ranks, or take more --layers",
                    stages, config.layers));
  require(
      !config.tied_head || stages == 1,
      "--tied: embedding and head lie on different stages and cannot share their weights; leave "
      "it out, or train on one rank");
  if (!options.split.empty()) {
    const std::vector<int64_t> counts = parse_counts(options.split);
    if (counts.size() != static_cast<size_t>(stages))
      throw UsageError(fmt::format("--split {}: {} stages, but there are {} ranks", options.split,
                                   counts.size(), stages));
    try {
      return spans_of(config, counts);
    } catch (const Error& error) {
      throw UsageError(fmt::format("--split {}: {}", options.split, error.what()));
    }
  }
  const auto spans = split(config.layers, stages, head_cost(config, config.context));
  require(spans.size() == static_cast<size_t>(stages), "lab 04's split: {} stages for {} ranks",
          spans.size(), stages);
  check_spans(config, spans);
  return spans;
}

void drop_resumed_split(PipelineOptions& options, TrainOptions& train, int stages) {
  const auto split_stages = 1 + std::ranges::count(options.split, ',');
  if (!train.resumed.contains("--split") || split_stages == stages) return;
  options.split.clear();
  train.program["--split"].clear();
}

Schedule choose_schedule(const std::string& name, int stages, int microbatches,
                         const ScheduleFunctions& functions) {
  Schedule schedule;
  if (name == "gpipe")
    schedule = functions.gpipe(stages, microbatches);
  else if (name == "1f1b")
    schedule = functions.one_f_one_b(stages, microbatches);
  else
    schedule = read_schedule(name);
  require_valid(schedule, "schedule " + name);
  require(schedule.stage_count() == stages, "schedule {}: it has {} stages; {} are wanted", name,
          schedule.stage_count(), stages);
  require(schedule.microbatches == microbatches,
          "schedule {}: it has {} microbatches; say --microbatches {}", name, schedule.microbatches,
          schedule.microbatches);
  return schedule;
}

void agree_on_schedule(Job& job, const Schedule& schedule) {
  const std::string text = to_text(schedule);
  job.agree("schedule (its checksum)",
            fmt::format("{:016x}", checksum(std::as_bytes(std::span(text)))));
}

void agree_on_pipeline(Job& job, const std::vector<StageSpan>& spans,
                       const PipelineOptions& options) {
  job.agree("stages", describe_stages(spans));
  job.agree("option timeline", options.timeline ? "yes" : "no");
}

std::string describe_stages(const std::vector<StageSpan>& spans) {
  std::string text;
  for (size_t s = 0; s < spans.size(); ++s) {
    const StageSpan& span = spans[s];
    const int64_t last = span.last_layer - 1;
    text += fmt::format("{}{}: {}layer{} {}{}", s == 0 ? "" : " | ", s,
                        span.embeds ? "embedding, " : "", span.first_layer == last ? "" : "s",
                        span.first_layer == last ? fmt::format("{}", last)
                                                 : fmt::format("{}-{}", span.first_layer, last),
                        span.has_head ? ", head" : "");
  }
  return text;
}

}  // namespace lab
