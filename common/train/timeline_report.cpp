#include "common/train/timeline_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/agreement.h"
#include "common/io/files.h"
#include "common/io/terminal.h"
#include "common/pipeline/draw.h"
#include "common/pipeline/simulate.h"
#include "common/train/run_folder.h"

namespace lab {
namespace {

// Of the grid, so that 80 columns hold it behind the launcher's prefix.
constexpr int kWidth = 75;

double mean_length(const RankTimeline& rank, SpanKind kind) {
  double sum = 0.0;
  int count = 0;
  for (const Span& span : rank.spans) {
    if (span.kind != kind) continue;
    sum += span.length();
    ++count;
  }
  return count > 0 ? sum / count : 0.0;
}

/// The mean passes of every stage; the loss belongs to the last stage's forward.
std::vector<StageCosts> measured_costs(const Timeline& timeline) {
  std::vector<StageCosts> costs;
  for (const RankTimeline& rank : timeline.ranks)
    costs.push_back(
        {.forward = mean_length(rank, SpanKind::kForward) + mean_length(rank, SpanKind::kLoss),
         .backward = mean_length(rank, SpanKind::kBackward)});
  return costs;
}

void print_idle(const Timeline& measured, const Schedule& schedule) {
  const Timeline implied = simulate(schedule, measured_costs(measured));
  const int stages = schedule.stage_count();
  fmt::print(
      "idle        {:.0f} % measured; {:.0f} % by the schedule, with passes as long as these; "
      "{:.0f} % if all stages were equal\n",
      100 * idle_share(measured), 100 * idle_share(implied),
      100 * ideal_bubble(stages, schedule.microbatches));
}

/// "8.1, 5.4, 9.0 MB", of all stages, on rank 0.
std::string activations_in_words(const LlamaStage& stage, ProcessGroup& pipeline) {
  const Tensor mine =
      Tensor::from({static_cast<float>(stage.peak_activation_bytes()) * 1e-6F}, {1});
  const Tensor all = Tensor::empty({pipeline.size(), 1});
  pipeline.all_gather(all, mine);
  return fmt::format("{:.1f} MB", fmt::join(all.values(), " MB, "));
}

/// All ranks of the job run on this machine, and there are more of them than cores.
bool cores_are_short(Job& job) {
  const RankEnvironment& environment = job.environment();
  const bool here = all_true(job.world(), environment.local_rank == environment.rank);
  return here && std::thread::hardware_concurrency() < static_cast<unsigned>(job.world().size());
}

}  // namespace

void show_timeline(Job& job, const LlamaStage& stage, const TimeWindow& window,
                   const Schedule& schedule, const std::filesystem::path& folder) {
  const std::string activations = activations_in_words(stage, job.world());
  const bool short_of_cores = cores_are_short(job);
  const std::string name = fmt::format("stage {}", job.world().rank());
  const std::optional<Timeline> timeline = gather_timeline(job, name, window);
  if (!timeline) return;

  write_file(folder / "timeline.svg", draw_svg(*timeline, "One training step, as measured"));
  write_file(folder / "trace.json", chrome_trace(*timeline));
  fmt::print("\nThe last step, as measured:\n{}",
             draw_grid(*timeline, {.color = wants_color(STDOUT_FILENO), .width = kWidth}));
  print_idle(*timeline, schedule);
  fmt::print("activations {} at most, by stage\n", activations);
  if (short_of_cores)
    fmt::print(
        "note: {} ranks share {} cores: a pass takes longer while others compute. Believe the "
        "order, not the speed\n",
        job.world().size(), std::thread::hardware_concurrency());
  fmt::print(
      "timeline    {0}/timeline.svg\ntrace       {0}/trace.json (ui.perfetto.dev opens it)\n",
      display_path(folder));
}

}  // namespace lab
