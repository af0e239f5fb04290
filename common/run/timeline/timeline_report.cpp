#include "common/run/timeline/timeline_report.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/agreement.h"
#include "common/pipeline/simulate.h"
#include "common/pipeline/step_timing.h"
#include "common/run/timeline/network_report.h"

namespace lab {
namespace {

/// Whether all ranks of the job run on this machine, and there are more of them than cores.
bool cores_are_short(Job& job) {
  const RankEnvironment& environment = job.environment();
  const bool here = all_true(job.world(), environment.local_rank == environment.rank);
  return here && std::thread::hardware_concurrency() < static_cast<unsigned>(job.world().size());
}

std::string name_of(int rank, int ranks, int stages, int slices) {
  const int place = rank / slices;
  std::string name = fmt::format("stage {}", place % stages);
  if (ranks > stages * slices) name = fmt::format("p{} {}", place / stages, name);
  if (slices > 1) name += fmt::format(" slice {}", rank % slices);
  return name;
}

/// The ranks that hold the same slice form pipelines.
Timeline theory_of_slices(const Timeline& measured, const Schedule& schedule, int slices) {
  Timeline theory = measured;
  for (int slice = 0; slice < slices; ++slice) {
    Timeline same{.unit = measured.unit, .ranks = {}};
    for (int r = slice; r < measured.rank_count(); r += slices)
      same.ranks.push_back(measured.ranks[static_cast<size_t>(r)]);
    same = theory_of(same, schedule);
    auto rank = static_cast<size_t>(slice);
    for (RankTimeline& own : same.ranks) {
      theory.ranks[rank] = std::move(own);
      rank += static_cast<size_t>(slices);
    }
  }
  return theory;
}

}  // namespace

std::optional<StepTimeline> measured_step(Job& job, const LlamaStage& stage,
                                          const TimeWindow& window, const Schedule& schedule,
                                          int slices) {
  ProcessGroup& world = job.world();
  const int stages = schedule.stage_count();
  const std::string name = name_of(world.rank(), world.size(), stages, slices);
  StepTimeline step;
  step.activation_bytes = all_numbers(world, static_cast<double>(stage.peak_activation_bytes()));
  step.short_of_cores = cores_are_short(job);
  std::optional<Timeline> measured = gather_timeline(job, name, window);
  if (!measured) return std::nullopt;
  step.theory = theory_of_slices(*measured, schedule, slices);
  step.measured = *std::move(measured);
  step.ideal_idle_share = ideal_bubble(stages, schedule.microbatches);
  return step;
}

void print_timeline(const StepTimeline& step, const std::filesystem::path& folder) {
  print_grid(step.measured, "The last step, as measured:");
  fmt::print(
      "idle        {:.0f} % measured; {:.0f} % by the schedule, with passes as long as these; "
      "{:.0f} % with GPipe or 1F1B on equal stages\n",
      100 * idle_share(step.measured), 100 * idle_share(step.theory), 100 * step.ideal_idle_share);
  if (has_network(step.measured)) fmt::print("{}", describe_network(step.measured));
  std::vector<std::string> megabytes;
  for (const double bytes : step.activation_bytes)
    megabytes.push_back(fmt::format("{:.1f} MB", 1e-6 * bytes));
  fmt::print("activations {} at most, by rank\n", fmt::join(megabytes, ", "));
  if (step.short_of_cores)
    fmt::print(
        "note: {} ranks share {} cores: a pass takes longer while others compute. Believe the "
        "order, not the speed\n",
        step.measured.rank_count(), std::thread::hardware_concurrency());
  print_files(folder);
}

void show_timeline(Job& job, const LlamaStage& stage, const TimeWindow& window,
                   const Schedule& schedule, const std::filesystem::path& folder) {
  const std::optional<StepTimeline> step = measured_step(job, stage, window, schedule);
  if (!step) return;
  write_timeline(step->measured, folder);
  print_timeline(*step, folder);
}

}  // namespace lab
