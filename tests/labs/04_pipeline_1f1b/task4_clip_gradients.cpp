// Task 4: the norm that every rank returns, its gradients afterwards, and what travels for them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "tests/grading/refusal.h"
#include "tests/grading/training_oracle.h"
#include "tests/labs/04_pipeline_1f1b/passes.h"

namespace lab04::task4 {
namespace {

using lab::OpKind;
using lab::Tensor;
using lab::grading::Expected;
using lab::grading::late_messages;
using lab::grading::Mistake;
using lab::grading::norm;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::stop;

// Of the norm. Double has room for any order of summation, float has not.
constexpr double kNormTolerance = 1e-9;
constexpr double kFloatTolerance = 1e-4;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// What is special about the gradients of a call.
struct Traits {
  std::string name;
  double limit = 0.31;  // max_norm, in norms of all gradients
  enum class Parts {
    kDiffer,  // the norms of the stages
    kEqual,
    kOneStage,  // has gradients, the others have zeros
    kNone,      // has gradients
  } parts = Parts::kDiffer;
  double magnitude = 1;                // 0: drawn
  double outlier = 0;                  // one gradient of one stage; 0: none
  std::optional<double> refused = {};  // max_norm instead of the limit, not to be accepted
  bool again = false;                  // those of the call before
  bool of_backward = false;            // the rank makes them; max_norm is small
};

const std::vector<Traits>& all_traits() {
  using Parts = Traits::Parts;
  static const std::vector<Traits> traits = {
      {.name = "gradients three times too long", .parts = Parts::kEqual},
      {.name = "gradients just short enough", .limit = 1.07},
      {.name = "each stage short enough, all together too long",
       .limit = 0.93,
       .parts = Parts::kEqual},
      {.name = "only one stage has gradients", .limit = 0.5, .parts = Parts::kOneStage},
      {.name = "all gradients are 0, max_norm is too small for a float",
       .limit = 1e-50,
       .parts = Parts::kNone},
      {.name = "gradients of about 1e20", .limit = 0.43, .magnitude = 1e20},
      {.name = "gradients of about 1e37",
       .limit = 0.43,
       .magnitude = 2e37},  // the norm is no float
      {.name = "gradients of about 1e-25", .limit = 0.7, .magnitude = 1e-25},
      {.name = "short gradients of about 1e-25", .limit = 1.5, .magnitude = 1e-25},
      {.name = "gradients of any size", .limit = 0.37, .magnitude = 0},
      {.name = "short gradients of any size", .limit = 1.4, .magnitude = 0},
      {.name = "again gradients of any size", .limit = 0.82, .magnitude = 0},
      {.name = "one large gradient among small ones", .limit = 0.6, .outlier = 2e4},
      {.name = "an infinite gradient", .outlier = kInfinity},
      {.name = "a gradient that is not a number", .outlier = kNan},
      {.name = "gradients slightly too long", .limit = 0.98},
      {.name = "gradients 0.2 % too long", .limit = 0.998},
      {.name = "gradients 0.003 % too long", .limit = 1 - 3e-5},
      {.name = "gradients barely short enough", .limit = 1 + 1e-6},
      {.name = "max_norm infinite: only the norm is asked for", .limit = kInfinity},
      {.name = "max_norm 0", .refused = 0},
      {.name = "max_norm -1", .refused = -1},
      {.name = "max_norm NaN", .refused = kNan},
      {.name = "short gradients, equally long on all stages", .limit = 1.2, .parts = Parts::kEqual},
      {.name = "gradients twice too long", .limit = 0.5},
      {.name = "the very same gradients again", .limit = 0.5, .again = true},
      {.name = "the gradients of a backward pass", .of_backward = true},
  };
  return traits;
}

/// One call of clip_gradients on all stages.
struct ClipCall {
  Traits traits;
  std::vector<Numbers> stages = {};  // the gradients of each, packed; none if a rank makes them
  double norm = 0;                   // of all
  double max_norm = 0;

  bool refused() const { return traits.refused.has_value(); }
  double factor() const { return norm > max_norm ? max_norm / norm : 1.0; }
};

double norm_of(const std::vector<Numbers>& stages) {
  double squares = 0;
  for (const Numbers& stage : stages)
    for (const double g : stage) squares += g * g;
  return std::sqrt(squares);
}

ClipCall draw_call(const Pipeline& pipeline, const lab::grading::TrainingOracle& oracle,
                   size_t number) {
  using Parts = Traits::Parts;
  ClipCall call{.traits = all_traits()[number]};
  const Traits& t = call.traits;
  if (t.of_backward) {
    call.max_norm = 1e-3;
    return call;
  }
  std::mt19937_64 draw(1000 * pipeline.training.seed + number);
  const size_t chosen = draw() % pipeline.stages();
  const double exponent = static_cast<double>(draw() % 31) - 15;
  const double magnitude = t.magnitude > 0 ? t.magnitude : std::pow(10, exponent);
  for (size_t s = 0; s < pipeline.stages(); ++s) {
    const auto [begin, end] = oracle.range(static_cast<int>(s));
    const Tensor drawn = lab::grading::draw_tensor({static_cast<int64_t>(end - begin)}, 1, draw());
    Numbers stage = lab::grading::to_doubles(drawn);
    double scale = magnitude * (1 + static_cast<double>((s + number) % 3));
    if (t.parts == Parts::kEqual) scale = 1.75 * magnitude / norm(stage);
    if (t.parts == Parts::kNone || (t.parts == Parts::kOneStage && s != chosen)) scale = 0;
    for (double& g : stage) g = double{static_cast<float>(scale * g)};
    if (t.outlier != 0 && s == chosen) stage[draw() % stage.size()] = t.outlier;
    call.stages.push_back(std::move(stage));
  }
  call.norm = norm_of(call.stages);
  call.max_norm = std::isfinite(call.norm) && call.norm > 0 ? t.limit * call.norm : t.limit;
  if (t.refused) call.max_norm = *t.refused;
  return call;
}

std::vector<ClipCall> calls_of(const Pipeline& pipeline) {
  const lab::grading::TrainingOracle oracle(pipeline.training);
  std::vector<ClipCall> calls;
  for (size_t k = 0; k < all_traits().size(); ++k) {
    calls.push_back(draw_call(pipeline, oracle, all_traits()[k].again ? k - 1 : k));
    calls.back().traits = all_traits()[k];
  }
  return calls;
}

std::vector<Parcel> inputs(const Pipeline& pipeline) {
  std::vector<Parcel> stages = pipeline.inputs();
  const std::vector<ClipCall> calls = calls_of(pipeline);
  for (size_t s = 0; s < stages.size(); ++s) {
    stages[s].set("steps", static_cast<double>(calls.size()));
    for (size_t k = 0; k < calls.size(); ++k) {
      stages[s].set(fmt::format("max_norm.{}", k), calls[k].max_norm);
      if (calls[k].traits.of_backward) continue;
      const Numbers& gradients = calls[k].stages[s];
      const Tensor packed = Tensor::empty({static_cast<int64_t>(gradients.size())});
      std::ranges::copy(gradients, packed.data());
      stages[s].set(fmt::format("gradients.{}", k), packed);
    }
  }
  return stages;
}

std::string in_call(const ClipCall& call) { return "in a call with " + call.traits.name; }

/// Of the norm that stage `s` returns from call `k`.
std::vector<Mistake> norm_mistakes(const std::vector<ClipCall>& calls, size_t k, size_t s) {
  const ClipCall& call = calls[k];
  double sum = 0;
  double so_far = 0;
  for (size_t i = 0; i < call.stages.size(); ++i) {
    const double own = norm(call.stages[i]);
    sum += own;
    if (i <= s) so_far += own * own;
  }
  const std::string what = "the norm that clip_gradients returns: ";
  std::vector<Mistake> mistakes = {
      {{norm(call.stages[s])},
       what + "that of this stage's own gradients; return the norm of the whole model's gradients"},
      {{sum}, what + "the sum of the stages' norms: a norm is the root of the sum of all squares"},
      {{call.norm * call.norm}, what + "the sum of the squares: its root is missing"},
      {{std::sqrt(so_far)},
       what + "the squares of the stages up to this one only: every rank needs those of all"},
      {{std::min(call.norm, call.max_norm)},
       what + "that after clipping; it should be the one before"}};
  mistakes.push_back(
      {{0.0},
       what + (std::isinf(call.max_norm) ? "0, because max_norm is infinite: return the norm "
                                           "whether anything is scaled or not"
                                         : "0, although there are gradients")});
  mistakes.push_back({{std::sqrt(2.0) * call.norm},
                      what + "1.41 times the right one: is every square counted twice?"});
  for (size_t earlier = 0; earlier < k; ++earlier)
    mistakes.push_back(
        {{calls[earlier].norm},
         what + "that of an earlier call: is something kept from one call to the next?"});
  return mistakes;
}

void expect_norms(const std::vector<ClipCall>& calls, const std::vector<Parcel>& stages, size_t k) {
  const ClipCall& call = calls[k];
  const std::vector<Numbers> got = lab::grading::numbers_of(stages, fmt::format("norm.{}", k));
  if (!std::isfinite(call.norm)) {
    for (size_t s = 0; s < got.size(); ++s)
      if (std::isfinite(got[s][0]))
        stop(fmt::format(
            "rank {}: the norm that clip_gradients returns is {:g}, although a gradient of the "
            "model is infinite or not a number: then the norm must not be finite, on any rank\n{}",
            s, got[s][0], in_call(call)));
    return;
  }
  for (size_t s = 0; s < got.size(); ++s)
    if (const double apart = std::abs(got[s][0] - call.norm);
        apart > kNormTolerance * call.norm && apart < kFloatTolerance * call.norm)
      stop(
          fmt::format("rank {}: the norm that clip_gradients returns is right in its first digits "
                      "only: are squares added up or sent as float? Use double\ngot {:.15g}, "
                      "expected {:.15g}\n{}",
                      s, got[s][0], call.norm, in_call(call)));
  lab::grading::expect_on_every_rank(
      got,
      [&](size_t s) {
        return Expected{.what = "the norm that clip_gradients returns",
                        .values = {call.norm},
                        .tolerance = {kNormTolerance * call.norm},
                        .mistakes = [&, s] { return norm_mistakes(calls, k, s); },
                        .if_not_finite =
                            "the norm that clip_gradients returns is not finite, "
                            "although all gradients are: in float, squares of large "
                            "numbers overflow. Add them in double"};
      },
      [&](size_t) { return in_call(call); });
  for (size_t s = 1; s < got.size(); ++s)
    if (got[s] != got[0])
      stop(
          fmt::format("the norms that ranks 0 and {} return differ in their last bits: every rank "
                      "should add up the same numbers in the same order\n{}",
                      s, in_call(call)));
}

/// The gradients of stage `s`, times something else.
std::vector<Mistake> gradient_mistakes(const ClipCall& call, size_t s) {
  const Numbers& gradients = call.stages[s];
  const std::string what = "the gradients after clip_gradients: ";
  std::vector<Mistake> mistakes;
  const auto add = [&](double factor, const std::string& message) {
    Numbers scaled = gradients;
    for (double& g : scaled) g *= factor;
    mistakes.push_back({scaled, what + message});
  };
  const auto factor_for = [&](double length) {
    return length > call.max_norm ? call.max_norm / length : 1.0;
  };
  double sum_of_norms = 0;
  for (const Numbers& stage : call.stages) sum_of_norms += norm(stage);
  add(1,
      "not scaled, although the norm of all stages exceeds max_norm; is a copy scaled, or "
      "something else?");
  add(call.max_norm / call.norm,
      "scaled to max_norm although they are shorter: clipping never makes gradients longer");
  add(factor_for(norm(gradients)),
      "clipped by the norm of this stage's own gradients: use the norm of the whole model's "
      "gradients, so that all stages scale by the same factor");
  add(factor_for(sum_of_norms),
      "clipped by the sum of the stages' norms: a norm is the root of the sum of all squares");
  add(call.factor() * call.factor(), "scaled twice");
  add(1 / call.factor(), "multiplied by norm / max_norm: it is the other way round");
  add(call.max_norm / (call.norm * call.norm), "divided by the sum of squares, not by its root");
  add(call.max_norm / (call.norm + 1e-6),
      "scaled by max_norm / (norm + 1e-6), as PyTorch does it: the factor is max_norm / norm");
  add(call.max_norm, "multiplied by max_norm: the factor is max_norm / norm");
  return mistakes;
}

void expect_gradients(const ClipCall& call, const std::vector<Parcel>& stages, size_t k) {
  if (!std::isfinite(call.norm)) return;
  const std::vector<Numbers> got = lab::grading::tensors_of(stages, fmt::format("gradients.{}", k));
  lab::grading::expect_on_every_rank(
      got,
      [&](size_t s) {
        Numbers right = call.stages[s];
        if (!call.refused())
          for (double& g : right) g *= call.factor();
        const bool changes = !call.refused() && call.factor() < 1;
        return Expected{
            .what = call.refused() ? "the gradients after a call that is refused"
                                   : "the gradients after clip_gradients",
            .values = right,
            .tolerance =
                changes ? lab::grading::relative_tolerance(right, kTolerance, 0) : Numbers{0},
            .mistakes = [&call, s] {
              return call.refused() ? std::vector<Mistake>{} : gradient_mistakes(call, s);
            }};
      },
      [&](size_t) { return in_call(call); });
}

/// One sum of a double over the pipeline.
void expect_messages(const Pipeline& pipeline, const ClipCall& call, const Parcel& result, size_t s,
                     size_t k) {
  const std::vector<Operation> operations =
      operations_of(result.part(fmt::format("traffic.{}", k)));
  const bool none = call.refused() || pipeline.stages() == 1;
  const auto is_sum = [](const Operation& operation) {
    return operation.kind == OpKind::kAllGather && operation.bytes == sizeof(double);
  };
  if (none ? operations.empty() : operations.size() == 1 && is_sum(operations[0])) return;
  stop(fmt::format("the numbers are right, but rank {} calls {}: {}\n{}", s, in_words(operations),
                   call.refused() ? "max_norm is refused before any message"
                   : none         ? "a pipeline of one stage needs no message"
                                  : "one lab::sum_over of the stage's own sum of squares is enough",
                   in_call(call)));
}

void expect_refused(const ClipCall& call, const Parcel& result, size_t s, size_t k) {
  const std::string& how = result.text(fmt::format("refusal.{}", k));
  if (call.refused() && how.empty())
    stop(
        fmt::format("rank {}: clip_gradients accepts {}: it should throw lab::Error, on every "
                    "rank and before any message",
                    s, call.traits.name));
  if (call.refused() && !lab::grading::is_refusal(how))
    stop(
        fmt::format("rank {}: given {}, clip_gradients {}: it should throw lab::Error "
                    "(lab::require)",
                    s, call.traits.name, lab::grading::in_words(how)));
  if (!call.refused() && !how.empty())
    stop(fmt::format("rank {}: clip_gradients {}: it should return the norm\n{}", s,
                     lab::grading::in_words(how), in_call(call)));
}

void judge(const Pipeline& pipeline, const std::vector<Parcel>& stages) {
  std::vector<ClipCall> calls = calls_of(pipeline);
  for (size_t k = 0; k < calls.size(); ++k) {
    if (calls[k].traits.of_backward) {
      calls[k].stages = lab::grading::tensors_of(stages, fmt::format("made.{}", k));
      calls[k].norm = norm_of(calls[k].stages);
    }
    for (size_t s = 0; s < stages.size(); ++s) expect_refused(calls[k], stages[s], s, k);
    if (!calls[k].refused()) expect_norms(calls, stages, k);
    expect_gradients(calls[k], stages, k);
    expect_same_weights(stages, k);
    for (size_t s = 0; s < stages.size(); ++s) expect_messages(pipeline, calls[k], stages[s], s, k);
  }
}

const PipelineScenario kClip{"clip", inputs, judge};

TEST(Task4, ThreeStages) {
  judge_pipelines(kClip, whole_world(3), 500, lab::grading::buffered_messages());
}

TEST(Task4, OneStageSendsNothing) {
  judge_pipelines(kClip, whole_world(1), 510, late_messages(51));
}

TEST(Task4, OneToSixStagesWithLateMessages) {
  judge_pipelines(kClip, parts_of_six_ranks(), 520, late_messages(52));
}

TEST(Task4, ThreeProcesses) { judge_pipelines(kClip, parts_of_three_ranks(), 530, {}); }

}  // namespace
}  // namespace lab04::task4
