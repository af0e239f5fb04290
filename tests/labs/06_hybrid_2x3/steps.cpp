// Cases of steps, hypotheses about pipelines and waves, and what is judged of a step.
#include "tests/labs/06_hybrid_2x3/steps.h"

#include <algorithm>
#include <cmath>

#include "tests/grading/training_judge.h"

namespace lab06 {
namespace {

using lab::TokenBatch;
using lab::grading::MicrobatchPart;
using lab::grading::StepContract;
using lab::grading::StepParts;
using lab::grading::TrainingCase;
using lab::grading::Weighing;

/// So that every stage's own gradients are longer than the bound: clipped by their norm, they are
/// not what they are without clipping.
void clip_every_stage(TrainingCase& c) {
  lab::grading::TrainingOracle oracle(c);
  const std::vector<Numbers> weights(c.steps[0].size(), oracle.initial_weights());
  const Numbers gradient = oracle.parts(0, weights).mean();
  c.max_norm = lab::grading::norm(gradient);
  for (int stage = 0; stage < c.stages(); ++stage)
    c.max_norm = std::min(c.max_norm, lab::grading::norm(oracle.of_stage(gradient, stage)));
  c.max_norm *= 0.6;
}

/// Only pipeline d has no targets.
TrainingCase without_targets_in(int d, TrainingCase c) {
  c.name = fmt::format("pipeline {} has no targets", d);
  c.optimizer = d % 2 == 0 ? "adam" : "sgd";
  c.steps.resize(2);
  for (auto& step : c.steps)
    for (TokenBatch& batch : step[static_cast<size_t>(d)]) remove_targets(batch);
  c.max_norm = 0.37 * lab::grading::first_gradient_norm(c);
  if (d == 1) scale_loss(c, 1e-15);
  return c;
}

/// In step s wave s has no targets, in any pipeline; in the last steps there is none such.
TrainingCase without_targets_in_waves(size_t wave, TrainingCase c) {
  c.name = "a wave without targets";
  for (size_t step = 0; step < c.steps.size(); ++step)
    for (auto& microbatches : c.steps[step])
      for (size_t k = 0; k < microbatches.size(); ++k)
        if (k / wave == step && microbatches.size() > wave) remove_targets(microbatches[k]);
  c.max_norm = 0.61 * lab::grading::first_gradient_norm(c);
  return c;
}

/// Hypotheses about pipelines and waves, on a rank of pipeline `own`.
std::vector<Weighing> weighings(const StepCase& c, const StepParts& p, size_t own) {
  std::vector<Weighing> all;
  const double total = p.targets;
  if (total == 0) return all;
  const Grid g = c.grid();
  const auto dp = static_cast<double>(g.dp);
  const double of_own = p.targets_of(own);
  const double m = c.wave;
  const double waves = p.count_of(0) / m;
  using Part = MicrobatchPart;
  const auto wave = [m](const Part& b) { return std::floor(static_cast<double>(b.number) / m); };
  const auto of_pipeline = [&p](const Part& b) {
    const double targets = p.targets_of(b.replica);
    return targets > 0 ? 1 / targets : 0.0;
  };
  const auto of_wave = [&p, wave](const Part& b, bool everywhere) {
    double targets = 0;
    for (const Part& other : p.microbatches)
      if (wave(other) == wave(b) && (everywhere || other.replica == b.replica))
        targets += other.targets;
    return targets > 0 ? 1 / targets : 0.0;
  };
  const auto add = [&](StepParts::Weight weight, const std::string& message) {
    all.push_back({message, std::move(weight)});
  };
  if (g.dp > 1) {
    const std::string alone =
        "those of this pipeline alone: nothing from the other pipelines was added. When all "
        "microbatches are done, add up the gradients of a stage's replicas: all_reduce in "
        "mesh.replicas (reduce gives the sum to one of them only)";
    const std::string no_shares =
        "loss has divided by all targets already, so the replicas only add up "
        "(mesh.replicas.all_reduce)";
    add([](const Part&) { return 0.0; },
        "all zero: are they scaled by a share of targets, which only last stages have? " +
            no_shares);
    add([=](const Part& b) { return p.targets_of(b.replica) / total / total; },
        "those of each pipeline are scaled by its share of the targets: " + no_shares);
    add([=](const Part& b) { return b.replica == own ? 1 / total : 0.0; }, alone);
    add([=](const Part& b) { return b.replica == own && of_own > 0 ? 1 / of_own : 0.0; }, alone);
    add([=](const Part& b) { return b.replica == 0 ? 1 / total : 0.0; },
        "all ranks have those of pipeline 0: a broadcast copies, the gradients of all pipelines "
        "must be added up (all_reduce)");
    const std::string one_divisor =
        "all targets of the step count the same, wherever they are; pass the result of "
        "total_targets to run_actions";
    add(of_pipeline,
        "every pipeline divides by its own targets, and the means are added up: " + one_divisor);
    add([=](const Part& b) { return of_pipeline(b) / dp; },
        "a mean of the pipelines' means: " + one_divisor);
    add([=](const Part&) { return 1 / std::max(std::floor(total / dp), 1.0) / dp; },
        "divided by the targets per pipeline, rounded to a whole number: " + one_divisor);
    add([=](const Part&) { return 1 / total / dp; },
        "divided by the number of pipelines, although loss has divided by all targets already: "
        "averaged twice");
    add([=](const Part&) { return dp / total; },
        "as many times too large as there are pipelines: is something added up twice?");
  }
  if (waves > 1) {
    add([=](const Part& b) { return wave(b) == waves - 1 ? 1 / total : 0.0; },
        "only the last wave arrived: zero the gradients once, before the first wave, and add up "
        "the losses of all");
    add([=](const Part& b) { return wave(b) == 0 ? 1 / total : 0.0; },
        "only the first wave arrived: run the schedule once per wave, on the next microbatches");
    add([=](const Part& b) { return wave(b) == 0 ? waves / total : 0.0; },
        "every wave ran on the first wave's microbatches: each wave must take the next ones");
    add([=](const Part& b) { return of_wave(b, true); },
        "every wave is divided by its own targets: count those of all waves");
    add([=](const Part& b) { return of_wave(b, false); },
        "every wave of every pipeline is divided by its own targets: count those of the whole "
        "step");
    add([=](const Part&) { return 1 / total / waves; },
        "divided by the number of waves on top of the number of targets: averaged twice");
    add([=](const Part& b) { return std::pow(dp, waves - 1 - wave(b)) / total; },
        "an all_reduce after every wave adds up again what was added up before: call it once, "
        "after the last wave");
    add([=](const Part& b) { return b.replica == own || wave(b) < waves - 1 ? 1 / total : 0.0; },
        "only this pipeline's gradients of the last wave: call all_reduce after the last wave");
  }
  return all;
}

void expect_same_gradients(const StepCase& c, const std::vector<Parcel>& ranks,
                           const std::string& entry) {
  const std::vector<Numbers> all = tensors_of(ranks, entry);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (const size_t first = c.grid().rank(0, c.grid().stage(rank)); all[rank] != all[first])
      stop(
          fmt::format("the gradients of rank {} and of rank {}, replicas of stage {}, are not the "
                      "same to the last bit: the replicas drift apart",
                      first, rank, c.grid().stage(rank)));
}

void judge(const StepCase& c, const std::string& gradients, const std::vector<Parcel>& ranks) {
  judge_steps(c.training, ranks,
              {.loss = StepContract::Loss::kPartOnLastStage,
               .bits_of_one_process = true,
               .loss_in_parts = c.wave < static_cast<int>(c.training.steps[0][0].size()),
               .gradients = gradients,
               .how_to_average = "add up the gradients of the replicas (mesh.replicas) first",
               .how_to_clip = "call lab04::clip_gradients after compute_gradients and before the "
                              "update, on all ranks of all pipelines",
               .weighings = [&c](const StepParts& all, size_t replica) {
                 return weighings(c, all, replica);
               }});
  for (size_t step = 0; step < c.training.steps.size(); ++step) {
    expect_same_gradients(c, ranks, fmt::format("gradients.{}", step));
    expect_order_and_messages(c, step, ranks);
  }
}

/// Why stages wait for each other forever.
std::string explain(size_t /*call*/, const std::vector<Parcel>& ranks,
                    const std::string& diagnosis) {
  for (const Parcel& rank : ranks)
    for (const Operation& operation : operations_of(rank))
      if (operation.state != lab::OpState::kDone && operation.bytes == 8 &&
          operation.group.starts_with("pipeline"))
        return "clipping waits for a stage that does not take part: all ranks of a pipeline must "
               "call lab04::clip_gradients, whatever their own loss or norm\n" +
               diagnosis;
  if (!diagnosis.starts_with("size mismatch: rank")) return diagnosis;
  return "the stages of a pipeline are at different microbatches: every stage must run every wave "
         "on the next ones, whatever targets it has\n" +
         diagnosis;
}

}  // namespace

Call StepCase::call(const std::string& scenario) const {
  Call call{.scenario = scenario,
            .inputs = {},
            .name = fmt::format("{}; {}, waves of {}", training.name, grid().in_words(), wave)};
  for (int rank = 0; rank < training.ranks(); ++rank) {
    call.inputs.push_back(training.input(rank));
    grid().set(call.inputs.back());
    call.inputs.back().set("wave", wave);
    call.inputs.back().set_text("schedule", schedule);
  }
  return call;
}

std::vector<StepCase> step_cases(const Grid& g, int multiple, uint64_t seed) {
  std::vector<TrainingCase> drawn =
      lab::grading::draw_cases({.replicas = g.dp, .stages = g.pp, .multiple_of = multiple},
                               1000 * lab::grading::scenario_seed() + seed);
  drawn.back().steps.resize(5);  // of many
  // The bound is not below 1: rounded, it is another one.
  scale_loss(drawn[1], 16 / drawn[1].loss_factor);
  clip_every_stage(drawn[1]);
  std::swap(drawn[0], drawn[1]);  // where all have equally many targets, mistakes look alike
  for (int d = 0; d < g.dp && g.dp > 1; ++d) drawn.push_back(without_targets_in(d, drawn[0]));
  drawn.push_back(without_targets_in_waves(1, drawn[0]));
  std::vector<StepCase> cases;
  for (size_t k = 0; k < drawn.size(); ++k) {
    std::vector<int> waves;
    const int count = static_cast<int>(drawn[k].steps[0][0].size());
    for (int m = count; m > 0; --m)
      if (count % m == 0) waves.push_back(m);
    // First several waves, and not as many as pipelines.
    std::stable_partition(waves.begin(), waves.end(),
                          [&](int m) { return m < count && count / m != g.dp; });
    cases.push_back({.training = drawn[k],
                     .wave = waves[k % waves.size()],
                     .schedule = k % 3 == 2 ? "gpipe" : "1f1b"});
  }
  cases.back().wave = 1;
  return cases;
}

void expect_steps(const std::string& scenario, const std::vector<StepCase>& cases,
                  JobOptions options) {
  options.explain = explain;
  std::vector<Call> calls;
  for (const StepCase& c : cases) calls.push_back(c.call(scenario));
  const std::string gradients = scenario == "train_step" ? "the gradients that the optimizer got"
                                                         : "stage.gradients() on return";
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& ranks) {
    judge(cases[k], gradients, ranks);
  });
}

}  // namespace lab06
