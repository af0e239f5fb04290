// Cases of steps, hypotheses about pipelines and waves, and the messages of a step.
#include "tests/labs/06_hybrid_2x3/steps.h"

#include <algorithm>
#include <cmath>

#include "common/pipeline/schedule.h"
#include "tests/grading/training_judge.h"

namespace lab06 {
namespace {

using lab::ActionKind;
using lab::OpKind;
using lab::TokenBatch;
using lab::grading::in_words;
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
  const Numbers gradient = oracle.mean(0, weights);
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
        "those of this pipeline alone: nothing of the other pipelines was added. The replicas of a "
        "stage add up their gradients when all microbatches are done, all_reduce in mesh.replicas "
        "(reduce gives the sum to one of them only)";
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
        "as many times too large as there are pipelines: are the gradients added up twice?");
  }
  if (waves > 1) {
    add([=](const Part& b) { return wave(b) == waves - 1 ? 1 / total : 0.0; },
        "only the last wave arrived: zero the gradients once, before the first wave, and add up "
        "the losses of all");
    add([=](const Part& b) { return wave(b) == 0 ? 1 / total : 0.0; },
        "only the first wave arrived: run the schedule once per wave, on the next microbatches");
    add([=](const Part& b) { return wave(b) == 0 ? waves / total : 0.0; },
        "every wave ran on the first wave's microbatches: the next wave takes the next ones");
    add([=](const Part& b) { return of_wave(b, true); },
        "every wave is divided by its own targets: count those of all waves");
    add([=](const Part& b) { return of_wave(b, false); },
        "every wave of every pipeline is divided by its own targets: count those of the whole "
        "step");
    add([=](const Part&) { return 1 / total / waves; },
        "divided by the number of waves on top of the number of targets: averaged twice");
    add([=](const Part& b) { return std::pow(dp, waves - 1 - wave(b)) / total; },
        "an all_reduce after every wave adds up what has been added up before: once, after the "
        "last wave");
    add([=](const Part& b) { return b.replica == own || wave(b) < waves - 1 ? 1 / total : 0.0; },
        "of the last wave only this pipeline's: the all_reduce comes after the last wave");
  }
  return all;
}

/// One step of one rank.
struct Sent {
  const StepCase& c;
  size_t step = 0;
  size_t rank = 0;
  const Parcel& result;

  std::string entry(const char* name) const { return fmt::format("{}.{}", name, step); }
  std::string who() const { return c.grid().name(rank); }
  const std::vector<TokenBatch>& microbatches() const {
    return c.training.steps[step][static_cast<size_t>(c.grid().pipeline(rank))];
  }
  size_t waves() const { return microbatches().size() / static_cast<size_t>(c.wave); }
  lab::ActionList actions() const {
    const lab::Schedule schedule = lab::schedule_from_text(result.text("schedule"), "schedule");
    return schedule.stages[static_cast<size_t>(c.grid().stage(rank))];
  }
};

/// Each wave runs the next m, in the order of the schedule.
void expect_order(const Sent& s) {
  Numbers expected;
  for (size_t wave = 0; wave < s.waves(); ++wave)
    for (const lab::Action& action : s.actions())
      if (action.kind == ActionKind::kForward)
        expected.push_back(static_cast<double>(wave) * s.c.wave + action.microbatch);
  const Numbers got = s.result.numbers(s.entry("order"));
  Numbers with_targets = expected;
  std::erase_if(with_targets, [&](double k) {
    return s.microbatches()[static_cast<size_t>(k)].target_count() == 0;
  });
  if (s.c.grid().is_last(s.rank) && got == with_targets && got != expected)
    stop(s.who() +
         ": the numbers are right, but loss is not called for microbatches without targets; the "
         "contract wants it called for all");
  if (s.c.grid().is_last(s.rank) && got != expected)
    stop(fmt::format(
        "{}: the numbers are right, but waves run on other microbatches than the next "
        "{}: first on 0 to {}, then on those after them\nloss was called with "
        "microbatches {}; expected {}",
        s.who(), s.c.wave, s.c.wave - 1, fmt::join(got, " "), fmt::join(expected, " ")));
}

/// The messages of all waves, as operations.
std::vector<Operation> messages_of_schedule(const Sent& s) {
  std::vector<Operation> all;
  for (size_t wave = 0; wave < s.waves(); ++wave)
    for (const lab::Action& action : s.actions()) {
      if (!lab::is_message(action.kind)) continue;
      const TokenBatch& batch = s.microbatches()[wave * static_cast<size_t>(s.c.wave) +
                                                 static_cast<size_t>(action.microbatch)];
      const bool next_stage =
          action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvGradient;
      all.push_back(
          {.kind = lab::is_send(action.kind) ? OpKind::kSend : OpKind::kRecv,
           .group = s.c.grid().row(s.rank),
           .peer = static_cast<int>(s.rank) + (next_stage ? 1 : -1),
           .tag = action.microbatch,
           .bytes = static_cast<uint64_t>(batch.batch * batch.length * s.c.training.model.dim) *
                    sizeof(float)});
    }
  return all;
}

/// Those of the pipeline: the schedule's, and then what clipping takes. Returns the number of the
/// schedule's last one.
int64_t expect_in_pipeline(const Sent& s, const std::vector<Operation>& got) {
  const std::vector<Operation> right = messages_of_schedule(s);
  const auto same = [](const Operation& a, const Operation& b) {
    return a.kind == b.kind && a.peer == b.peer && a.tag == b.tag && a.bytes == b.bytes;
  };
  const auto [here, there] = std::ranges::mismatch(right, got, same);
  const std::vector<Operation> others(there, got.end());
  if (here != right.end())
    stop(
        fmt::format("{}: the numbers are right, but the messages in the pipeline are not those of "
                    "the schedule, once for each of the {} waves\nnext should be a {}, after {} "
                    "operations; there is {}",
                    s.who(), s.waves(), in_words({*here}), here - right.begin(),
                    others.empty() ? "none" : in_words({others[0]})));
  const bool clips = s.c.training.max_norm > 0 && s.c.training.stages() > 1;
  const auto is_of_clipping = [](const Operation& o) {
    return o.kind == OpKind::kAllGather && o.bytes == sizeof(double);
  };
  const bool only_clips = clips && std::ranges::all_of(others, is_of_clipping);
  const bool one_sum = only_clips && others.size() == 1;
  if (only_clips && others.size() > 1)
    stop(
        fmt::format("{}: the numbers are right, but lab04::clip_gradients is called {} times in a "
                    "step: gradients that are clipped need it no more",
                    s.who(), others.size()));
  if (!others.empty() && !one_sum)
    stop(fmt::format(
        "{}: the numbers are right, but in addition to the messages of the schedule it takes {} in "
        "its pipeline{}",
        s.who(), in_words(others),
        clips ? ": lab04::clip_gradients takes one all_gather of 8 bytes"
              : ": a step that does not clip sends nothing else there"));
  return right.empty() ? 0 : got[right.size() - 1].id;
}

/// Those among the replicas: total_targets, and a single all_reduce. Returns its number.
int64_t expect_among_replicas(const Sent& s, const std::vector<Operation>& got) {
  constexpr uint64_t kMostBytes = 2 * sizeof(double);  // of total_targets
  const auto bytes = static_cast<uint64_t>(s.result.number("gradient_bytes"));
  std::vector<Operation> sums;
  int counts = 0;
  for (const Operation& operation : got) {
    const bool reduces = operation.kind == OpKind::kAllReduce;
    const bool counts_targets = operation.bytes > 0 && operation.bytes <= kMostBytes &&
                                (reduces || operation.kind == OpKind::kAllGather);
    if (reduces && operation.bytes == bytes) {
      sums.push_back(operation);
    } else if (counts_targets && counts == 0 && sums.empty()) {
      ++counts;
    } else if (reduces && operation.bytes > kMostBytes) {
      stop(
          fmt::format("{}: an {}; the gradients of the stage are {} bytes and travel together, in "
                      "a single all_reduce of stage.gradients()",
                      s.who(), in_words({operation}), bytes));
    } else {
      stop(
          fmt::format("{}: the numbers are right, but it takes {}: apart from total_targets there "
                      "is a single all_reduce, of stage.gradients(). Neither weights nor the state "
                      "of the optimizer need a message",
                      s.who(), in_words({operation})));
    }
  }
  const bool alone = s.c.training.replicas == 1;  // then there is nobody to send to
  if (sums.size() > 1 || (sums.empty() && !alone))
    stop(
        fmt::format("{}: {} all_reduces of the gradients, there should be 1, after the last of "
                    "the {} waves",
                    s.who(), sums.size(), s.waves()));
  return sums.empty() ? 0 : sums[0].id;
}

/// Nothing between the last wave and the all_reduce that waits for other stages.
void expect_no_wait(const Sent& s) {
  const std::vector<Operation> all = operations_of(s.result.part(s.entry("traffic")));
  const auto bytes = static_cast<uint64_t>(s.result.number("gradient_bytes"));
  const auto late = std::ranges::find_if(all, [&](const Operation& o) {
    return o.group == s.c.grid().row(s.rank) && !(lab::is_message(o.kind) && o.bytes > 8);
  });
  const auto sum = std::ranges::find_if(
      all, [&](const Operation& o) { return o.kind == OpKind::kAllReduce && o.bytes == bytes; });
  if (late < sum && sum != all.end())
    stop(fmt::format(
        "{} posts the all_reduce of its gradients too late: before it comes {}, for which stages "
        "wait for each other. A stage that has done its own last backward waits for its replicas "
        "only: no barrier, no clipping, no message of other stages before mesh.replicas.all_reduce",
        s.who(), in_words({*late})));
}

void expect_messages(const Sent& s) {
  const std::vector<Operation> all = operations_of(s.result.part(s.entry("traffic")));
  std::vector<Operation> row;
  std::vector<Operation> column;
  for (const Operation& operation : all) {
    if (operation.group == s.c.grid().row(s.rank)) {
      row.push_back(operation);
    } else if (operation.group == s.c.grid().column(s.rank)) {
      column.push_back(operation);
    } else {
      stop(
          fmt::format("{}: the numbers are right, but it takes {} in the group \"{}\": a step "
                      "takes messages in mesh.pipeline and in mesh.replicas only",
                      s.who(), in_words({operation}), operation.group));
    }
  }
  const int64_t sum = expect_among_replicas(s, column);
  if (const int64_t last = expect_in_pipeline(s, row); sum != 0 && sum < last)
    stop(s.who() + " posts the all_reduce of its gradients before it has done its last backward");
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

void judge(const StepCase& c, const std::vector<Parcel>& ranks) {
  judge_steps(c.training, ranks,
              {.loss = StepContract::Loss::kPartOnLastStage,
               .bits_of_one_process = true,
               .loss_in_parts = c.wave < static_cast<int>(c.training.steps[0][0].size()),
               .how_to_average = "add up the gradients of the replicas (mesh.replicas) first",
               .how_to_clip = "call lab04::clip_gradients after compute_gradients and before the "
                              "update, on all ranks of all pipelines",
               .weighings = [&c](const StepParts& all, size_t replica) {
                 return weighings(c, all, replica);
               }});
  for (size_t step = 0; step < c.training.steps.size(); ++step) {
    const auto on_every_rank = [&](void (*expect)(const Sent&)) {
      for (size_t rank = 0; rank < ranks.size(); ++rank) expect({c, step, rank, ranks[rank]});
    };
    expect_same_gradients(c, ranks, fmt::format("gradients.{}", step));
    for (const auto& expect : {expect_order, expect_no_wait, expect_messages})
      on_every_rank(expect);
  }
}

/// Why stages wait for each other forever.
std::string explain(size_t /*call*/, const std::vector<Parcel>& ranks,
                    const std::string& diagnosis) {
  for (const Parcel& rank : ranks)
    for (const Operation& operation : operations_of(rank))
      if (operation.state != lab::OpState::kDone && operation.bytes == 8 &&
          operation.group.starts_with("pipeline"))
        return "clipping waits for a stage that does not take part: all ranks of a pipeline call "
               "lab04::clip_gradients, whatever their own loss or norm\n" +
               diagnosis;
  if (!diagnosis.starts_with("size mismatch: rank")) return diagnosis;
  return "the stages of a pipeline are at different microbatches: every stage runs every wave on "
         "the next ones, whatever targets it has\n" +
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
  drawn.back().steps.resize(3);  // of twenty
  drawn[1].loss_factor = 16;     // the bound is not below 1: rounded, it is another one
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
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

}  // namespace lab06
