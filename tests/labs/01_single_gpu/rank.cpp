// The rank program of lab 01: the contract's functions, and the scenarios that call them.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/tensor/parallel.h"
#include "labs/01_single_gpu/single_gpu.h"
#include "tests/grading/implementation.h"
#include "tests/grading/rank_main.h"
#include "tests/grading/short_turns.h"
#include "tests/grading/training_rank.h"
#include "tests/labs/01_single_gpu/softmax.h"

using lab::Tensor;
using lab::grading::own;
using lab::grading::Parcel;
using lab::grading::record_event;
using lab::grading::ShortTurns;

namespace lab01 {
namespace given_1a {
namespace {

/// Two threads that call it leave at the same moment, unless the other one does not come: whatever
/// they do next without protection is a race.
void leave_in_pairs() {
  static std::atomic<unsigned> arrived{0};
  const unsigned own_place = arrived.fetch_add(1);
  if (own_place % 2 == 1) return;  // the other one waits
  for (int patience = 300; patience > 0 && arrived.load() == own_place + 1; --patience) {
  }
}

}  // namespace

/// In the place of the student's for task 1b. It refuses what no cross-entropy can answer.
LAB_GIVEN double cross_entropy(std::span<float> logits, int32_t target, float scale) {
  lab::require(target != lab::kPadding,
               "cross_entropy was called with padding as the target: a position whose next token "
               "is lab::kPadding predicts nothing");
  lab::require(target >= 0 && static_cast<size_t>(target) < logits.size(),
               "cross_entropy was called with target {}, but there are {} scores: was a token read "
               "from beyond its row, or are the scores not one row of V?",
               target, logits.size());
  const auto y = static_cast<size_t>(target);
  // Hardly any time for two scores far apart: threads spend it where the losses are added up.
  if (logits.size() == 2 && logits[1 - y] - logits[y] == 64) {
    logits[y] = -scale;
    logits[1 - y] = scale;
    leave_in_pairs();
    return 64;
  }
  const Softmax softmax(logits);
  const double loss = softmax.loss(y);
  for (size_t v = 0; v < logits.size(); ++v)
    logits[v] = static_cast<float>(scale * (softmax.probabilities[v] - (v == y ? 1.0 : 0.0)));
  return loss;
}

}  // namespace given_1a

// The contract's functions.

double cross_entropy(std::span<float> logits, int32_t target, float scale) {
  if (lab::grading::is_given("1a")) return given_1a::cross_entropy(logits, target, scale);
  return own(&cross_entropy)(logits, target, scale);
}

double causal_lm_loss(const Tensor& logits, const lab::TokenBatch& batch, int64_t total_targets) {
  return own(&causal_lm_loss)(logits, batch, total_targets);
}

void adam_update(const lab::AdamConfig& config, float learning_rate, int64_t step,
                 std::span<float> parameters, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment) {
  return own(&adam_update)(config, learning_rate, step, parameters, gradients, first_moment,
                           second_moment);
}

double train_step(lab::LlamaStage& model, lab::Optimizer& optimizer,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm) {
  return own(&train_step)(model, optimizer, microbatches, loss, learning_rate, max_gradient_norm);
}

namespace {

constexpr int kLeastRounds = 3;
constexpr int kMostRounds = 100;

/// Numbers with a fence on either side, and in the same place in every call: what a function keeps
/// for an address is then of another call.
class Fenced {
 public:
  std::span<float> fill(std::span<const float> values) {
    end_ = kFenceLength + values.size();
    lab::require(end_ + kFenceLength <= memory().size(), "{} numbers are too many for a fence",
                 values.size());
    std::ranges::fill(memory().first(end_ + kFenceLength), kFence);
    std::ranges::copy(values, memory().begin() + kFenceLength);
    return memory().subspan(kFenceLength, values.size());
  }
  Tensor as_tensor(const lab::Shape& shape) const {
    return block_.rows(kFenceLength, static_cast<int64_t>(end_)).view(shape);
  }
  bool is_broken() const {
    const auto is_other = [](float value) { return value != kFence; };
    return std::ranges::any_of(memory().first(kFenceLength), is_other) ||
           std::ranges::any_of(memory().subspan(end_, kFenceLength), is_other);
  }

 private:
  static constexpr float kFence = 12345.0F;
  static constexpr int64_t kFenceLength = 24;
  static constexpr int64_t kMost = (1 << 20) + 64;
  std::span<float> memory() const { return block_.values(); }
  Tensor block_ = Tensor::empty({kMost});
  size_t end_ = kFenceLength;
};

struct Row {
  std::span<float> scores;
  int32_t target = 0;
  float scale = 1;
};

Row row_of(const Parcel& input, const Tensor& logits, size_t n) {
  const auto row = static_cast<int64_t>(n);
  return {logits.rows(row, row + 1).values(), static_cast<int32_t>(input.numbers("targets")[n]),
          static_cast<float>(input.numbers("scales")[n])};
}

/// Task 1a on every row of `logits` [N, V], with `targets` and `scales`.
Parcel run_cross_entropy(const Parcel& input) {
  static Fenced fenced;
  const Tensor logits = input.tensor("logits").clone();
  std::vector<double> losses;
  bool fence_broken = false;
  for (size_t n = 0; n < input.numbers("targets").size(); ++n) {
    const Row row = row_of(input, logits, n);
    const std::span<float> scores = fenced.fill(row.scores);
    losses.push_back(cross_entropy(scores, row.target, row.scale));
    fence_broken = fence_broken || fenced.is_broken();
    std::ranges::copy(scores, row.scores.begin());
  }
  Parcel result;
  result.set("losses", losses);
  result.set("gradients", logits);
  result.set("fence_broken", fence_broken ? 1.0 : 0.0);
  return result;
}

bool is_close(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max(std::abs(b), 1.0); }

/// Calls `round`, which returns how many results differ from those of one thread, again and again
/// while threads interrupt each other, until some do. Returns how many.
double others_by_threads(const std::function<int64_t()>& round) {
  const ShortTurns turns;
  int64_t others = 0;
  for (int k = 0; k < kMostRounds && others == 0 && !(ShortTurns::over() && k >= kLeastRounds); ++k)
    others = round();
  return static_cast<double>(others);
}

/// Task 1a on every row of `logits` by one thread, then again and again by several at once, until a
/// row has another result than with one thread. Returns how many have in that round.
Parcel run_cross_entropy_by_threads(const Parcel& input) {
  const Tensor alone = input.tensor("logits").clone();
  const size_t count = input.numbers("targets").size();
  std::vector<double> losses;
  std::vector<Row> rows;
  for (size_t n = 0; n < count; ++n) {
    rows.push_back(row_of(input, alone, n));
    losses.push_back(cross_entropy(rows[n].scores, rows[n].target, rows[n].scale));
  }
  Parcel result;
  result.set("others", others_by_threads([&] {
               const Tensor together = input.tensor("logits").clone();
               std::vector<char> differs(count, 0);
               lab::parallel_for(0, static_cast<int64_t>(count), [&](int64_t i) {
                 const auto n = static_cast<size_t>(i);
                 const std::span<float> scores = together.rows(i, i + 1).values();
                 const double loss = cross_entropy(scores, rows[n].target, rows[n].scale);
                 const bool same = is_close(loss, losses[n]) &&
                                   std::ranges::equal(scores, rows[n].scores, is_close);
                 differs[n] = same ? 0 : 1;
               });
               return std::ranges::count(differs, 1);
             }));
  return result;
}

/// Task 1b, with `by_threads` again and again on the same input, by threads that interrupt each
/// other, until the loss differs from that before.
Parcel run_causal_lm_loss(const Parcel& input) {
  static Fenced fenced;
  const Tensor& scores = input.tensor("logits");
  const lab::TokenBatch batch = input.batch("tokens");
  Parcel result;
  std::vector<double> losses;
  std::optional<ShortTurns> turns;
  if (input.number("by_threads") != 0) turns.emplace();
  const auto goes_on = [&] {
    if (losses.size() < (turns ? kLeastRounds : 1)) return true;
    return turns && !ShortTurns::over() && losses.size() < kMostRounds &&
           losses.back() == losses.front();
  };
  while (goes_on()) {
    fenced.fill(scores.values());
    const Tensor logits = fenced.as_tensor(scores.shape());
    losses.push_back(
        causal_lm_loss(logits, batch, static_cast<int64_t>(input.number("total_targets"))));
    result.set("gradients", logits.clone());
  }
  result.set("losses", losses);
  result.set("fence_broken", fenced.is_broken() ? 1.0 : 0.0);
  return result;
}

/// Task 2: one update, in blocks of `block` elements.
Parcel run_adam_update(const Parcel& input) {
  static Fenced parameters;
  static Fenced gradients;
  static Fenced first;
  static Fenced second;
  const lab::AdamConfig config{.beta1 = static_cast<float>(input.number("beta1")),
                               .beta2 = static_cast<float>(input.number("beta2")),
                               .epsilon = static_cast<float>(input.number("epsilon"))};
  const std::span<float> w = parameters.fill(input.tensor("parameters").values());
  const std::span<float> g = gradients.fill(input.tensor("gradients").values());
  const std::span<float> m = first.fill(input.tensor("first_moment").values());
  const std::span<float> v = second.fill(input.tensor("second_moment").values());
  lab::parallel_blocks(
      static_cast<int64_t>(w.size()), static_cast<int64_t>(input.number("block")),
      [&](int64_t begin, int64_t end) {
        const auto part = [&](std::span<float> all) {
          return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
        };
        adam_update(config, static_cast<float>(input.number("learning_rate")),
                    static_cast<int64_t>(input.number("step")), part(w), part(g), part(m), part(v));
      });
  const auto tensor = [](std::span<const float> values) {
    return Tensor::from(values, {static_cast<int64_t>(values.size())});
  };
  const bool is_broken =
      parameters.is_broken() || gradients.is_broken() || first.is_broken() || second.is_broken();
  Parcel result;
  result.set("parameters", tensor(w));
  result.set("gradients", tensor(g));
  result.set("first_moment", tensor(m));
  result.set("second_moment", tensor(v));
  result.set("fence_broken", is_broken ? 1.0 : 0.0);
  return result;
}

/// Task 2 by one thread, then again and again by several at once, each with other arguments, until
/// a call has another result than alone. Returns how many have in that round.
Parcel run_adam_update_by_threads(const Parcel& input) {
  const auto calls = input.tensor("gradients").size(0);
  const auto update = [&](int64_t call, const Tensor& w, const Tensor& m, const Tensor& v) {
    const auto row = [&](const Tensor& all) { return all.rows(call, call + 1).values(); };
    const float beta = 0.5F + 0.4F * static_cast<float>(call) / static_cast<float>(calls);
    adam_update({.beta1 = beta, .beta2 = beta, .epsilon = 1e-4F}, 0.1F, 1 + call % 7, row(w),
                row(input.tensor("gradients")), row(m), row(v));
  };
  const Tensor alone[] = {input.tensor("parameters").clone(), input.tensor("first_moment").clone(),
                          input.tensor("second_moment").clone()};
  for (int64_t call = 0; call < calls; ++call) update(call, alone[0], alone[1], alone[2]);
  Parcel result;
  result.set(
      "others", others_by_threads([&] {
        const Tensor together[] = {input.tensor("parameters").clone(),
                                   input.tensor("first_moment").clone(),
                                   input.tensor("second_moment").clone()};
        lab::parallel_for(
            0, calls, [&](int64_t call) { update(call, together[0], together[1], together[2]); });
        int64_t others = 0;
        for (int64_t call = 0; call < calls; ++call) {
          bool same = true;
          for (size_t part = 0; part < std::size(together); ++part)
            same = same && std::ranges::equal(together[part].rows(call, call + 1).values(),
                                              alone[part].rows(call, call + 1).values(), is_close);
          others += same ? 0 : 1;
        }
        return others;
      }));
  return result;
}

/// Task 3. The passes are among the events.
/// Records, besides what record_steps does, the gradients that step S leaves: "left.S".
Parcel run_train_step(const Parcel& input) {
  std::vector<Tensor> left;
  const auto take_step = [&left](const lab::grading::StepArguments& a) {
    a.stage.observe_passes([](lab::LlamaStage::Pass pass, int /*microbatch*/, bool begins) {
      if (begins) record_event(pass == lab::LlamaStage::Pass::kForward ? "forward" : "backward");
    });
    const double loss =
        train_step(a.stage, a.optimizer, a.microbatches, a.loss, a.learning_rate, a.max_norm);
    left.push_back(lab::grading::packed(a.stage, a.stage.gradients()));
    return loss;
  };
  Parcel result = lab::grading::record_steps(input, nullptr, take_step);
  for (size_t step = 0; step < left.size(); ++step)
    result.set(fmt::format("left.{}", step), left[step]);
  return result;
}

}  // namespace
}  // namespace lab01

int main(int argc, char** argv) {
  return lab::grading::rank_main(
      argc, argv,
      {.alone = {{"cross_entropy", lab01::run_cross_entropy},
                 {"cross_entropy_by_threads", lab01::run_cross_entropy_by_threads},
                 {"causal_lm_loss", lab01::run_causal_lm_loss},
                 {"adam_update", lab01::run_adam_update},
                 {"adam_update_by_threads", lab01::run_adam_update_by_threads},
                 {"train_step", lab01::run_train_step}}});
}
