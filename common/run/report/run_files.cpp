#include "common/run/report/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "common/format.h"
#include "common/io/files.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/run_folder.h"
#include "common/run/generation/generate.h"
#include "common/run/metrics/metrics.h"
#include "common/run/report/run_report.h"
#include "common/run/report/samples.h"
#include "common/run/timeline/network_report.h"
#include "common/run/training/pipeline_setup.h"

namespace lab {
namespace {

constexpr int64_t kSampleTokens = 60;

std::string number(int64_t value) { return fmt::format("{}", value); }

/// "2 x 3", or "2 x 3 x 2" if layers are divided.
std::string mesh(const RunPlan& plan) {
  return fmt::format("{} x {}{}", plan.dp, plan.pp,
                     plan.tp > 1 ? fmt::format(" x {}", plan.tp) : "");
}

FactGroup mesh_facts(const RunFacts& facts) {
  const RunPlan& plan = facts.plan;
  const int64_t microbatches = plan.dp * plan.accumulate;
  if (plan.shard > 0)
    return {"Shards",
            {{"replicas", number(plan.dp)},
             {"in shards", fmt::format("{} (ZeRO {})", in_shards(plan.shard), plan.shard)},
             {"microbatches", fmt::format("{} a step on all ranks", microbatches)}}};
  return {"Mesh",
          {{plan.tp > 1 ? "pipelines x stages x slices" : "pipelines x stages", mesh(plan)},
           {"layers by stage", describe_stages(facts.stages)},
           {"schedule", plan.schedule},
           {"microbatches", fmt::format("{} a wave, {} a step in all pipelines", plan.microbatches,
                                        microbatches)}}};
}

std::string subtitle(const RunPlan& plan) {
  if (plan.shard > 0)
    return fmt::format("{}, {} in shards (ZeRO {})", counted(plan.dp, "rank"),
                       in_shards(plan.shard), plan.shard);
  return fmt::format("{} ranks, {} each, {}", mesh(plan), counted(plan.microbatches, "microbatch"),
                     plan.schedule);
}

std::vector<FactGroup> fact_groups(const RunFacts& facts) {
  const RunPlan& plan = facts.plan;
  const LlamaConfig& model = facts.model;
  return {
      mesh_facts(facts),
      {"Model",
       {{"weights", format_count(parameter_count(model))},
        {"layers", number(model.layers)},
        {"width", number(model.dim)},
        {"heads", number(model.heads)},
        {"context", number(model.context)},
        {"vocabulary", format_count(model.vocab_size)}}},
      {"Training",
       {{"steps", number(plan.steps)},
        {"tokens a step", format_count(plan.sequences_per_step() * model.context)},
        {"peak learning rate", fmt::format("{}", plan.learning_rate)},
        {"clipping", plan.clip > 0 ? fmt::format("{}", plan.clip) : "none"},
        {"seed", number(plan.seed)},
        {"corpus", plan.data.filename().string()}}},
  };
}

bool lacks_report(const std::filesystem::path& folder) {
  const auto checkpoints = list_checkpoints(folder);
  std::error_code ignored;  // a missing file is older than any other
  return !checkpoints.empty() && std::filesystem::last_write_time(folder / "report.html", ignored) <
                                     std::filesystem::last_write_time(checkpoints.back(), ignored);
}

}  // namespace

void print_sample(const std::filesystem::path& folder, int64_t step, const Tokenizer& tokenizer,
                  const RunPlan& plan) {
  if (plan.story_tokens == 0) return;
  const LlamaStage model = load_model(find_checkpoint(folder));
  GenerateOptions story = story_of(plan);
  story.max_tokens = std::min(story.max_tokens, kSampleTokens);
  append_sample(folder, {step, generate(model, tokenizer, story)});
}

void write_run_report(const std::filesystem::path& folder, const std::optional<StepTimeline>& step,
                      const RunFacts& facts) {
  if (!step && !lacks_report(folder)) return;
  if (step) write_timeline(step->measured, folder);
  RunReport report;
  report.title = std::filesystem::absolute(folder).filename().string();
  report.subtitle = subtitle(facts.plan);
  report.whose_labs = facts.whose_labs;
  report.facts = fact_groups(facts);
  report.memory = facts.memory;
  if (step && has_network(step->measured) && facts.plan.shard == 0)
    report.facts.front().facts.push_back(
        {"gradients", "summed in buckets, during the last backward pass"});
  report.metrics = read_metrics(folder / "metrics.jsonl");
  report.timing = step;
  if (!report.metrics.empty()) report.samples = read_samples(folder, report.metrics.back().step);
  if (step && step->short_of_cores)
    report.notes.push_back(
        fmt::format("{} ranks shared {} cores: a pass takes longer while others compute. Believe "
                    "the order, not the speed.",
                    step->measured.rank_count(), std::thread::hardware_concurrency()));
  write_file(folder / "report.html", report_html(report));
  fmt::print("report      {}/report.html\n", display_path(folder));
}

}  // namespace lab
