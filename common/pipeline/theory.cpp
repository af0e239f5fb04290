// What theory predicts for a measured step.
#include <algorithm>

#include "common/error.h"
#include "common/pipeline/simulate.h"
#include "common/pipeline/step_timing.h"

namespace lab {
namespace {

int count(const RankTimeline& rank, SpanKind kind) {
  return static_cast<int>(std::ranges::count(rank.spans, kind, &Span::kind));
}

double mean_length(const RankTimeline& rank, SpanKind kind) {
  double sum = 0;
  for (const Span& span : rank.spans)
    if (span.kind == kind) sum += span.length();
  const int number = count(rank, kind);
  return number > 0 ? sum / number : 0;
}

Schedule repeated(const Schedule& schedule, int waves) {
  Schedule result{schedule.microbatches * waves, schedule.stages};
  for (ActionList& actions : result.stages) {
    const ActionList once = actions;
    for (int wave = 1; wave < waves; ++wave)
      for (Action action : once) {
        action.microbatch += wave * schedule.microbatches;
        actions.push_back(action);
      }
  }
  return result;
}

void shift(std::vector<Span>& spans, int first_rank, int microbatches) {
  for (Span& span : spans) {
    if (span.peer >= 0) span.peer += first_rank;
    if (span.microbatch >= 0) span.microbatch %= microbatches;  // every wave counts from 0
  }
}

}  // namespace

Timeline theory_of(const Timeline& measured, const Schedule& schedule) {
  const int stages = schedule.stage_count();
  require(stages > 0 && schedule.microbatches > 0 && measured.rank_count() > 0 &&
              measured.rank_count() % stages == 0,
          "theory of a step: {} measured ranks do not make pipelines of {} stages",
          measured.rank_count(), stages);
  const int passes = count(measured.ranks[0], SpanKind::kForward);
  const Schedule step = repeated(schedule, std::max(1, passes / schedule.microbatches));
  Timeline theory{.unit = measured.unit, .ranks = {}};
  for (int first = 0; first < measured.rank_count(); first += stages) {
    std::vector<StageCosts> costs;
    for (int stage = 0; stage < stages; ++stage) {
      const RankTimeline& rank = measured.of(first + stage);
      // One loss per microbatch; it counts as part of the last stage's forward.
      costs.push_back(
          {.forward = mean_length(rank, SpanKind::kForward) + mean_length(rank, SpanKind::kLoss),
           .backward = mean_length(rank, SpanKind::kBackward)});
    }
    Timeline pipeline = simulate(step, costs);
    for (int stage = 0; stage < stages; ++stage) {
      RankTimeline& rank = pipeline.ranks[static_cast<size_t>(stage)];
      rank.name = measured.of(first + stage).name;
      shift(rank.spans, first, schedule.microbatches);
      shift(rank.messages, first, schedule.microbatches);
      theory.ranks.push_back(std::move(rank));
    }
  }
  return theory;
}

}  // namespace lab
