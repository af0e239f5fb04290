#include "common/run/options/settle_ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/comm/diagnosis/operation.h"
#include "common/error.h"
#include "common/format.h"

namespace lab {
namespace {

constexpr int kMicrobatchesPerStep = 6;
constexpr int kStages = 3;
constexpr int kSlices = 3;
constexpr int kShards = 6;

int largest_divisor(int number, int limit) {
  int divisor = std::min(number, limit);
  while (number % divisor != 0) --divisor;
  return divisor;
}

/// Replicas of the whole model that share it. `ranks`: 0 if nobody has said how many.
void settle_shards(RunPlan& plan, int ranks, bool resumed) {
  if (plan.pp > 1 || plan.tp > 1)
    throw UsageError(fmt::format(
        "--shard {} with --{}: only replicas of a whole model can hold it in shards; use --pp 1 "
        "--tp 1 and give their number with --dp, or use --shard 0",
        plan.shard, plan.pp > 1 ? fmt::format("pp {}", plan.pp) : fmt::format("tp {}", plan.tp)));
  plan.pp = plan.tp = 1;
  if (ranks > 0 && (plan.dp == 0 || resumed)) plan.dp = ranks;
  if (plan.dp == 0) plan.dp = kShards;
  if (ranks > 0 && plan.dp != ranks)
    throw UsageError(fmt::format("--shard {} --dp {}: the number of ranks is {}; change one",
                                 plan.shard, plan.dp, ranks));
}

void settle_mesh(RunPlan& plan, int ranks, bool resumed) {
  if (plan.shard > 0) return settle_shards(plan, ranks, resumed);
  if (ranks == 1 && resumed) plan.dp = plan.pp = plan.tp = 1;  // otherwise as in the earlier run
  plan.tp = std::max(1, plan.tp);
  const int places = std::max(1, ranks / plan.tp);  // for stages
  if (ranks > 0 && plan.pp == 0 && plan.dp == 0) plan.pp = largest_divisor(places, kStages);
  if (plan.pp == 0) plan.pp = ranks == 0 ? kStages : std::max(1, places / plan.dp);
  if (plan.dp == 0) plan.dp = ranks == 0 ? 2 : std::max(1, places / plan.pp);
  if (ranks > 0 && plan.ranks() != ranks) {
    const bool whole = plan.tp == 1;
    throw UsageError(fmt::format(
        "--dp {} --pp {}{}: {} of {}{} are {}, but the number of ranks is {}; change one", plan.dp,
        plan.pp, whole ? "" : fmt::format(" --tp {}", plan.tp), counted(plan.dp, "pipeline"),
        counted(plan.pp, "stage"), whole ? "" : fmt::format(" on {} ranks each", plan.tp),
        counted(plan.ranks(), "rank"), ranks));
  }
}

/// By default, one pipeline of one stage, whose layers are divided among all ranks.
void settle_slices(RunPlan& plan, int ranks) {
  plan.dp = std::max(1, plan.dp);
  plan.pp = std::max(1, plan.pp);
  if (plan.tp == 0) plan.tp = ranks == 0 ? kSlices : std::max(1, ranks / (plan.dp * plan.pp));
  if (ranks > 0 && plan.ranks() != ranks)
    throw UsageError(
        fmt::format("--dp {} --pp {} --tp {} make {}, but the number of ranks is {}; change one",
                    plan.dp, plan.pp, plan.tp, counted(plan.ranks(), "rank"), ranks));
}

void settle_microbatches(RunPlan& plan, int64_t resumed) {
  const int64_t groups = int64_t{plan.dp} * plan.waves;
  const bool no_pipeline = plan.division == Division::kSlices && plan.pp == 1;
  const int64_t per_step = no_pipeline ? groups : kMicrobatchesPerStep;
  if (plan.microbatches == 0)
    plan.microbatches =
        static_cast<int>(std::max<int64_t>(1, (resumed > 0 ? resumed : per_step) / groups));
  if (resumed > 0 && plan.microbatches * groups != resumed)
    throw UsageError(
        fmt::format("--resume: this run takes {} a step; {}, {} and --microbatches {} make {}",
                    counted(resumed, "microbatch"), counted(plan.dp, "pipeline"),
                    counted(plan.waves, "wave"), plan.microbatches, plan.microbatches * groups));
}

}  // namespace

void add_rank_options(CommandLine& line, RunPlan& plan) {
  const Division division = plan.division;
  if (division == Division::kNone) return;
  add_launch_options(line, plan.launch);
  if (division == Division::kReplicas) return;
  const bool slices = division == Division::kSlices;
  const bool mesh = has_mesh(division);
  line.group(mesh ? "Mesh" : "Pipeline");
  if (mesh) {
    plan.dp = plan.pp = 0;
    line.add("--dp", plan.dp, "N",
             fmt::format("pipelines, each with its shard of the data; default: {}", slices ? 1 : 2))
        .within(1, kMaxWorldSize)
        .carried();
    line.add("--pp", plan.pp, "N",
             fmt::format("stages of each pipeline; default: {}", slices ? 1 : kStages))
        .within(1, kMaxWorldSize)
        .carried();
    if (division != Division::kMesh) {
      plan.tp = 0;
      line.add("--tp", plan.tp, "N",
               fmt::format(
                   "ranks that divide every layer among them{}",
                   slices ? "; default: 3, or what --ranks leaves" : " (lab 10); default: 1"))
          .within(1, kMaxWorldSize)
          .carried();
    }
    if (division == Division::kTrainer)
      line.add("--shard", plan.shard, "STAGE",
               "replicas hold the model in shards (lab 09). 0: no shards; 1: the optimizer's "
               "state; 2: and gradients; 3: and weights; on six ranks unless --dp or --ranks says "
               "otherwise")
          .within(0, 3)
          .shows_default()
          .carried();
    plan.microbatches = 0;
    line.add("--microbatches", plan.microbatches, "M",
             fmt::format("microbatches of a wave in each pipeline; default: six a step in all "
                         "pipelines{}",
                         slices ? "; one, if --pp is 1" : ""))
        .within(1, 4096);
  } else if (division == Division::kMicrobatches) {
    plan.microbatches = kMicrobatchesPerStep;
    line.add("--microbatches", plan.microbatches, "M", "microbatches of a wave")
        .within(1, 4096)
        .shows_default()
        .kept();
  }
  if (division != Division::kStages) {
    line.add("--waves", plan.waves, "W", "waves per update of the weights")
        .within(1, 4096)
        .shows_default()
        .kept();
    line.add("--schedule", plan.schedule, "gpipe|1f1b|FILE",
             "order of the passes; the format of a FILE is in common/pipeline/schedule.h")
        .shows_default()
        .carried();
  }
  line.group("Pipeline");
  line.add("--split", plan.split, "N,N,..", "layers of each stage; default: lab 04's split")
      .carried();
  if (slices) return;  // messages within a pass: no rows to draw them in
  line.add_flag("--timeline", plan.timeline,
                "show what every rank did in the last step; timeline.svg and trace.json in --out");
}

void settle_ranks(RunPlan& plan, int64_t resumed) {
  const Division division = plan.division;
  const int ranks = division == Division::kNone ? 1 : ranks_wanted(plan.launch);
  if (has_mesh(division)) {
    if (division == Division::kSlices)
      settle_slices(plan, ranks);
    else
      settle_mesh(plan, ranks, resumed > 0);
    const std::string slices =
        division == Division::kMesh ? std::string() : fmt::format(" --tp {}", plan.tp);
    if (plan.ranks() > kMaxWorldSize)
      throw UsageError(fmt::format("--dp {} --pp {}{}: {} ranks; {} is the most", plan.dp, plan.pp,
                                   slices, plan.ranks(), kMaxWorldSize));
    if (ranks == 0) plan.launch.ranks = plan.ranks();
    settle_microbatches(plan, resumed);
  } else {
    const bool pipeline = division != Division::kNone && division != Division::kReplicas;
    plan.dp = pipeline ? 1 : std::max(1, ranks);
    plan.pp = pipeline ? std::max(1, ranks) : 1;
    if (!pipeline) return;
  }
  if (division == Division::kStages && plan.accumulate != 1)
    throw UsageError("--accumulate: here the whole batch is one microbatch; lab 05 takes several");
  if (plan.pp > 1 && plan.microbatches > kMaxMicrobatches)
    throw UsageError(fmt::format(
        "--microbatches {}: a wave through several stages takes {} at most; use more --waves",
        plan.microbatches, kMaxMicrobatches));
  const int64_t per_pipeline = int64_t{plan.microbatches} * plan.waves;
  if (resumed == 0 && plan.accumulate != 1 && plan.accumulate != per_pipeline)
    throw UsageError("--accumulate: here it is --microbatches times --waves; use these");
  plan.accumulate = per_pipeline;
}

}  // namespace lab
