// One wave of a pipeline: drawn, executed, and judged on every stage.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/pipeline/schedule.h"
#include "tests/grading/training_mistakes.h"
#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"
#include "tests/labs/05_microbatches/course.h"
#include "tests/labs/05_microbatches/plans.h"

namespace lab05 {

/// How microbatches of a wave differ, apart from their tokens.
enum class Microbatches { kAlike, kShapes, kNoTargets };

struct Wave {
  std::string name;
  lab::Schedule schedule;
  lab::grading::TrainingCase training;  // a single step: this wave
  double total = 0;                     // targets of the step: this wave's, and others'
  std::string hint = {};                // what is probably wrong, if only this wave's gradients are
  double lost = 0;                      // every loss, if it is not finite

  int stages() const { return schedule.stage_count(); }
  const std::vector<lab::TokenBatch>& microbatches() const { return training.steps[0][0]; }
  Course course(int stage, int first_rank, const lab::grading::Parcel& result) const;
};

Wave draw_wave(const std::string& name, const lab::Schedule& schedule, Microbatches differ_in,
               uint64_t seed);

/// Waves of 1 to 8 and of 19 microbatches. `regular` and `random` make their programs; a program of
/// `random` comes twice, with different microbatches.
std::vector<Wave> draw_waves(
    int stages, uint64_t seed, const std::function<lab::Schedule(const Size&)>& regular,
    const std::function<lab::Schedule(const Size&, uint64_t seed)>& random);

/// A model cut into as many stages, with `microbatches`, for a case of a single step.
lab::grading::TrainingCase draw_pipeline(int stages, std::vector<lab::TokenBatch> microbatches,
                                         uint64_t seed);

/// Tokens where TrainingCase gives none: any numbers.
void fill_missing_tokens(lab::grading::Parcel& input, int64_t vocab);

/// A wave that has been run, and what it should have given.
struct WaveRun {
  const Wave& wave;
  int first_rank;
  std::vector<lab::grading::Parcel> stages;
  lab::grading::TrainingOracle oracle;
  lab::grading::StepParts parts;

  WaveRun(const Wave& of, int first, std::vector<lab::grading::Parcel> results);

  double share() const { return wave.total > 0 ? 1 / wave.total : 0.0; }
  lab::grading::Numbers with_leftover(lab::grading::Numbers gradient) const {
    for (double& g : gradient) g += double{wave.training.leftover};
    return gradient;
  }
  int last_rank() const { return first_rank + wave.stages() - 1; }
};

/// Hypotheses about wrong gradients of a stage, and a wrong loss of the last one.
std::vector<lab::grading::Mistake> gradient_mistakes(const WaveRun& run, int stage);
std::vector<lab::grading::Mistake> loss_mistakes(const WaveRun& run);
/// Hypotheses about a step of waves of m microbatches each: how much each microbatch counts.
std::vector<lab::grading::Weighing> wave_weighings(size_t m, const lab::grading::StepParts& step);

/// Runs the waves one after the other in one job of `ranks` ranks, as many at a time as have room
/// there, and judges messages, order, calls of the loss, gradients, losses and waiting.
void judge_waves(const std::vector<Wave>& waves, int ranks, lab::grading::JobOptions options);

}  // namespace lab05
