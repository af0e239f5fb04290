// Updates, losses, weights and messages of train_step.
#include "tests/labs/05_microbatches/verdict_step.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "tests/labs/pipeline/same_bits.h"

namespace lab05 {

using lab::OpKind;
using lab::grading::Expected;
using lab::grading::Parcel;

namespace {

void set_common(const StepCase& c, Parcel& parcel) {
  parcel.set("max_norm", c.max_norm);
  parcel.set_text("optimizer", c.optimizer);
  parcel.set("steps", c.steps);
  parcel.set("learning_rate", c.learning_rate);
}

}  // namespace

std::vector<Parcel> StepCase::inputs() const {
  std::vector<Parcel> all(ranks());
  for (size_t r = 0; r < ranks(); ++r) {
    set_common(*this, all[r]);
    set_microbatches(all[r], tokens_for(r, ranks(), microbatches));
    all[r].set_text("schedule", to_text(schedule));
    all[r].set("leftover", leftover);
  }
  return all;
}

Parcel StepCase::as_one_process() const {
  Parcel input;
  set_common(*this, input);
  set_microbatches(input, microbatches);
  return input;
}

void expect_one_update(const std::vector<Parcel>& results, const StepCase& c) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    for (int step = 0; step < c.steps; ++step) {
      const double updates = results[rank].number(fmt::format("updates{}", step));
      if (updates == 0)
        lab::grading::stop(fmt::format(
            "rank {}: the weights are not updated: optimizer.step was never called. Every stage "
            "updates its own",
            rank));
      if (updates > 1)
        lab::grading::stop(
            fmt::format("rank {}: one step of training is one update: optimizer.step was called {} "
                        "times for {} waves; call it once, after the last wave",
                        rank, updates, c.waves()));
      lab::grading::expect(results[rank].number(fmt::format("rate{}", step)),
                           {.what = "the learning rate that optimizer.step was given",
                            .values = {c.learning_rate},
                            .tolerance = {1e-8},
                            .name = {},
                            .mistakes = {},
                            .if_not_finite = ""});
    }
}

void expect_weights(const std::vector<Parcel>& results, const StepCase& c, const Parts& p) {
  const Parcel one = oracle("one_process", c.as_one_process());
  for (int step = 0; step < c.steps; ++step) {
    const std::string entry = fmt::format("weights{}", step);
    Expected expected{.what = fmt::format("the weights after step {} of {}", step + 1, c.optimizer),
                      .values = lab::grading::to_doubles(one.tensor(entry)),
                      .tolerance = p.weights,
                      .name = [&p](size_t i) { return p.name(i); },
                      .mistakes = {},
                      .if_not_finite = ""};
    // Judged on the way that they have gone: the weight itself is rounded at every update, and
    // differences grow from step to step.
    double farthest = 0;
    for (size_t i = 0; i < p.weights.size(); ++i)
      farthest = std::max(farthest, std::abs(expected.values[i] - p.weights[i]));
    for (double& tolerance : expected.tolerance)
      tolerance = 2e-7 * std::abs(tolerance) * (step + 1) + 1e-4 * farthest;
    expect_parts_of(
        expected,
        [&] {
          return std::vector<lab::grading::Mistake>{
              {p.weights, "the weights are those of the beginning: no update reached them"}};
        },
        results, entry);
    pipeline_tests::confirm_bits(pipeline_tests::joined(pipeline_tests::tensors_of(results, entry)),
                                 expected.values, expected.what);
    if (c.waves() > 1) continue;  // each wave has a sum of its own: another order of addition
    const std::string loss = fmt::format("loss{}", step);
    pipeline_tests::confirm_bits(results.back().numbers(loss), one.numbers(loss),
                                 fmt::format("the loss of step {}", step + 1));
  }
}

void expect_messages(const std::vector<Parcel>& results, const StepCase& c) {
  const size_t last = results.size() - 1;
  const bool clips = c.max_norm > 0 && last > 0;
  for (size_t r = 0; r <= last; ++r) {
    size_t sends = 0;
    for (const lab::Action& action : c.schedule.stages[r]) sends += is_send(action.kind) ? 1 : 0;
    sends = static_cast<size_t>(c.steps) * (c.waves() * sends + (clips && r < last ? 1 : 0));
    if (const auto got = lab::grading::traffic_of(results[r], OpKind::kSend).operations;
        got != sends)
      lab::grading::stop(fmt::format(
          "rank {} sends {} messages, it should send {}: those of its actions once per wave{}", r,
          got, sends, clips ? ", and one of clip_gradients per step" : ""));
    for (const OpKind kind : std::array{OpKind::kBarrier, OpKind::kBroadcast, OpKind::kReduce,
                                        OpKind::kAllReduce, OpKind::kAllGather}) {
      const auto steps = static_cast<uint64_t>(c.steps);
      const uint64_t right = kind == OpKind::kBroadcast && clips ? steps : 0;
      if (const auto got = lab::grading::traffic_of(results[r], kind).operations; got != right)
        lab::grading::stop(
            fmt::format("rank {} takes part in {} operations {}, there should be {}: only "
                        "clip_gradients has one, per step. Neither gradients nor the number of "
                        "targets are anything that another stage needs",
                        r, got, lab::op_name(kind), right));
    }
  }
}

}  // namespace lab05
