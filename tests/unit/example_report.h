// A made-up run of two pipelines of three stages, for tests of its report.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/pipeline/simulate.h"
#include "common/run/report/run_report.h"
#include "tests/unit/pipeline_plans.h"

namespace lab {

inline constexpr uint64_t kActivationBytes = 884'736;
inline constexpr uint64_t kGradientBytes = 11'000'000;

inline Schedule example_schedule(int microbatches) {
  return with_messages_beside(one_f_one_b_plan(3, microbatches), true);
}

/// Of pipeline d: the schedule in simulated time, a little slower in the second, then the
/// all-reduce with the other pipeline's rank and the update.
inline Timeline example_timeline(int microbatches) {
  Timeline timeline{.unit = "s", .ranks = {}};
  for (int pipeline = 0; pipeline < 2; ++pipeline) {
    const double slow = 1 + 0.07 * pipeline;
    Timeline part =
        simulate(example_schedule(microbatches), {{0.021 * slow, 0.043 * slow, 0.0015},
                                                  {0.022 * slow, 0.044 * slow, 0.0015},
                                                  {0.030 * slow, 0.061 * slow, 0.0015}});
    for (int stage = 0; stage < 3; ++stage) {
      RankTimeline rank = part.ranks[static_cast<size_t>(stage)];
      rank.name = fmt::format("pipeline {}, stage {}", pipeline, stage);
      for (std::vector<Span>* spans : {&rank.spans, &rank.messages})
        for (Span& span : *spans) {
          span.start += 0.004;
          span.end += 0.004;
          if (span.peer < 0) continue;
          span.peer += 3 * pipeline;
          span.bytes = kActivationBytes;
        }
      timeline.ranks.push_back(std::move(rank));
    }
  }
  for (size_t stage = 0; stage < 3; ++stage) {
    double entered[2];
    for (size_t d = 0; d < 2; ++d) {
      const RankTimeline& rank = timeline.ranks[stage + 3 * d];
      entered[d] = rank.spans.back().end;
    }
    const double end = std::max(entered[0], entered[1]) + 0.012;
    for (size_t d = 0; d < 2; ++d) {
      RankTimeline& rank = timeline.ranks[stage + 3 * d];
      rank.spans.push_back({.kind = SpanKind::kCollective,
                            .start = entered[d],
                            .end = end,
                            .bytes = kGradientBytes,
                            .collective = OpKind::kAllReduce,
                            .members = (1U << stage) | (1U << (stage + 3))});
      rank.spans.push_back({.kind = SpanKind::kOptimizer, .start = end, .end = end + 0.009});
    }
  }
  return timeline;
}

inline std::vector<StepRecord> example_metrics(int64_t steps) {
  std::vector<StepRecord> metrics;
  double seconds = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto s = static_cast<double>(step);
    const double noise = std::sin(12.9898 * s) * 43758.5453;
    const double wobble = noise - std::floor(noise) - 0.5;
    seconds += 0.41;
    StepRecord record{.step = step,
                      .loss = 2.1 + 6.2 * std::exp(-s / 90) + 0.3 * wobble,
                      .tokens_per_second = 11'240 + 900 * wobble,
                      .learning_rate = 8e-4 * std::min(1.0, s / 40),
                      .seconds = seconds};
    if (step == 1 || step % 100 == 0 || step == steps)
      record.val_loss = record.loss - 0.15 * wobble;
    metrics.push_back(record);
  }
  return metrics;
}

inline RunReport example_report(int64_t steps = 700, int microbatches = 6) {
  const Timeline measured = example_timeline(microbatches);
  RunReport report{
      .title = "007-train",
      .subtitle = fmt::format("2 pipelines of 3 stages, {} microbatches each, 1F1B", microbatches),
      .whose_labs = "mine",
      .facts = {{"Model",
                 {{"layers", "6"},
                  {"width", "288"},
                  {"heads", "6"},
                  {"vocabulary", "4,096"},
                  {"parameters", "8,365,536"}}},
                {"Training",
                 {{"steps", "700"},
                  {"batch", "2 pipelines × 6 microbatches × 3 sequences × 256 tokens"},
                  {"optimizer", "Adam"},
                  {"learning rate", "0.0008, cosine"},
                  {"seed", "1"}}},
                {"Data",
                 {{"corpus", "data/tinystories_sample/stories_train.txt"},
                  {"tokenizer", "data/tinystories_sample/tokenizer_4096.model"}}}},
      .metrics = example_metrics(steps)};
  report.timing = StepTimeline{.measured = measured,
                               .theory = theory_of(measured, example_schedule(microbatches)),
                               .ideal_idle_share = ideal_bubble(3, microbatches)};
  report.samples = {
      {0, "Once upon a time nose▁ hears belie sofashy quiet tra whe circle"},
      {100,
       "Once upon a time, there was a little girl. She was a big and he was the dog. She said, "
       "\"I can you can play.\" She was happy."},
      {300,
       "Once upon a time, there was a little boy named Tim. Tim had a red ball. He liked to play "
       "with it in the park.\n\nOne day, the ball was very sad. Tim said, \"No, ball!\""},
      {steps,
       "Once upon a time, there was a little girl named Lily. She loved to play outside in "
       "the garden. One day, she saw a small bird on the ground. The bird was cold and could "
       "not fly.\n\nLily took the bird to her house. Her mom said, \"Let us make a warm bed "
       "for it.\" The next day the bird could fly again. It sang a song for Lily, and they "
       "were friends."}};
  report.notes = {
      "6 ranks share 2 cores: a pass takes longer while others compute. Believe the "
      "order, not the speed."};
  return report;
}

}  // namespace lab
