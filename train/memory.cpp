#include "train/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/error.h"
#include "common/tools/plan/estimate.h"

namespace train {

using namespace lab;

namespace {

constexpr double kMegabyte = 1e6;

int stage_of(const RunPlan& plan, int rank) { return rank / plan.tp % plan.pp; }

std::string name_of(const RunPlan& plan, int rank) {
  if (plan.shard > 0 || plan.ranks() == 1) return fmt::format("rank {}", rank);
  std::string name = fmt::format("p{} stage {}", rank / plan.tp / plan.pp, stage_of(plan, rank));
  if (plan.tp > 1) name += fmt::format(" slice {}", rank % plan.tp);
  return name;
}

}  // namespace

std::vector<double> planned_memory(const RunPlan& plan, int64_t vocabulary,
                                   const std::vector<StageSpan>& spans) {
  Training training{.model = plan.model,
                    .length = plan.model.context,
                    .batch = plan.dp * plan.microbatches * plan.batch,
                    .precision = float32_precision(),
                    .order = plan.schedule == "gpipe" ? PassOrder::kGpipe : PassOrder::kOneFOneB};
  training.model.vocab_size = vocabulary;
  if (plan.optimizer == OptimizerKind::kSgd) training.precision.parameter = 8;
  const Layout layout{plan.dp, plan.pp, plan.microbatches, plan.tp, plan.shard};
  std::vector<double> bytes;
  for (int stage = 0; stage < plan.pp; ++stage)
    bytes.push_back(stage_memory(training, layout, spans, stage));
  return bytes;
}

void check_limit(const RunPlan& plan, int64_t limit_mb, const std::vector<double>& planned) {
  const auto fullest = std::ranges::max_element(planned);
  if (limit_mb == 0 || *fullest <= kMegabyte * static_cast<double>(limit_mb)) return;
  throw UsageError(fmt::format(
      "--memory-limit {}: a rank{} needs about {:.0f} MB; more stages (--pp), --tp, --shard or "
      "fewer sequences (--batch) need less",
      limit_mb, plan.pp > 1 ? fmt::format(" of stage {}", fullest - planned.begin()) : "",
      *fullest / kMegabyte));
}

std::vector<RankMemory> gather_memory(ProcessGroup& world, const MemoryAccount& account,
                                      const RunPlan& plan, const std::vector<double>& planned) {
  constexpr int64_t kNumbers = kMemoryKinds + 1;
  std::vector<float> own;  // a float has seven digits
  for (size_t kind = 0; kind < kMemoryKinds; ++kind)
    own.push_back(static_cast<float>(account.peak(static_cast<MemoryKind>(kind))));
  own.push_back(static_cast<float>(account.peak()));
  const Tensor all = Tensor::empty({world.size(), kNumbers});
  world.all_gather(all, Tensor::from(own, {kNumbers}));
  if (world.rank() != 0) return {};
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    const float* numbers = all.data() + kNumbers * rank;
    RankMemory& memory = ranks.emplace_back();
    memory.name = name_of(plan, rank);
    for (size_t kind = 0; kind < kMemoryKinds; ++kind)
      memory.peaks[kind] = std::llround(numbers[kind]);
    memory.peak = std::llround(numbers[kMemoryKinds]);
    memory.planned = std::llround(planned[static_cast<size_t>(stage_of(plan, rank))]);
  }
  return ranks;
}

std::string describe_memory(const std::vector<RankMemory>& ranks) {
  const auto most = std::ranges::max_element(ranks, {}, &RankMemory::peak);
  return fmt::format("memory      {:.1f} MB at most, on rank {} (planned: {:.1f} MB); peaks of {}",
                     static_cast<double>(most->peak) / kMegabyte, most - ranks.begin(),
                     static_cast<double>(most->planned) / kMegabyte, in_words(most->peaks));
}

}  // namespace train
