#include "common/run/training/pipeline_setup.h"

#include <fmt/format.h>

#include <span>
#include <sstream>

#include "common/error.h"
#include "common/io/files.h"
#include "common/model/split.h"
#include "common/parse_number.h"
#include "common/pipeline/validate.h"

namespace lab {
namespace {

std::vector<int64_t> parse_counts(const std::string& text) {
  std::vector<int64_t> counts;
  std::istringstream words(text + ",");
  for (std::string word; std::getline(words, word, ',');) {
    const int64_t count = parse_number<int64_t>(word).value_or(0);
    if (count < 1)
      throw UsageError(fmt::format(
          "--split {}: it takes the layers of each stage, one at least, as in 2,2,2", text));
    counts.push_back(count);
  }
  return counts;
}

}  // namespace

std::vector<StageSpan> choose_stages(const LlamaConfig& config, int stages,
                                     const std::string& given, SplitFunction split) {
  if (stages > config.layers)
    throw UsageError(
        fmt::format("{} ranks for {} layers: every stage needs a layer; start fewer "
                    "ranks, or take more --layers",
                    stages, config.layers));
  require(
      !config.tied_head || stages == 1,
      "--tied: embedding and head lie on different stages and cannot share their weights; leave "
      "it out, or train on one rank");
  if (!given.empty()) {
    const std::vector<int64_t> counts = parse_counts(given);
    if (counts.size() != static_cast<size_t>(stages))
      throw UsageError(fmt::format("--split {}: {} stages, but there are {} ranks", given,
                                   counts.size(), stages));
    try {
      return spans_of(config, counts);
    } catch (const Error& error) {
      throw UsageError(fmt::format("--split {}: {}", given, error.what()));
    }
  }
  const auto spans = split(config.layers, stages, head_cost(config, config.context));
  require(spans.size() == static_cast<size_t>(stages), "lab 04's split: {} stages for {} ranks",
          spans.size(), stages);
  check_spans(config, spans);
  return spans;
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

void agree_on_stages(Job& job, const std::vector<StageSpan>& spans) {
  job.agree("stages", describe_stages(spans));
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
