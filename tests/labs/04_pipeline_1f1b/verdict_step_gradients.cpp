// What each optimizer should get, and what it gets by well-known mistakes.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/labs/04_pipeline_1f1b/verdict_passes.h"
#include "tests/labs/04_pipeline_1f1b/verdict_step_judges.h"
#include "tests/labs/pipeline/every_rank.h"

namespace lab04 {
namespace {

using lab::grading::Expected;
using lab::grading::Parcel;

void add_clipping_mistakes(const StepOracle& oracle, const StepCase& c, size_t rank,
                           Expected& expected) {
  const Numbers whole = oracle.unclipped();
  const Numbers own = oracle.layout.part(whole, rank);
  const double own_norm = norm(own);
  const double last_norm = norm(oracle.layout.part(whole, c.ranks() - 1));
  double sum_of_norms = 0;
  for (size_t s = 0; s < c.ranks(); ++s) sum_of_norms += norm(oracle.layout.part(whole, s));

  if (c.ranks() > 1)
    expected.mistakes.push_back(
        {clipped(own, own_norm, c.max_norm),
         own_norm > c.max_norm
             ? "clipped by the norm of this stage's own gradients: the norm is that of the whole "
               "model, which lab::clip_gradients(stage, max_gradient_norm, pipeline) knows"
             : "not clipped, though the norm of the whole model's gradient is too large: this "
               "stage's own norm is not what counts; call lab::clip_gradients on every rank"});
  expected.mistakes.push_back(
      {own,
       "not clipped: call lab::clip_gradients(stage, max_gradient_norm, pipeline) on every "
       "rank, after backward and before the update"});
  expected.mistakes.push_back(
      {clipped(own, last_norm, c.max_norm),
       "clipped by the norm of the last stage's gradients: the norm is that of the whole model"});
  expected.mistakes.push_back(
      {clipped(own, sum_of_norms, c.max_norm),
       "clipped by the sum of the stages' norms: add their squares, then take the root"});
}

/// Another divisor of the loss, and nothing that makes up for it. Clipping may hide it.
void add_divided_otherwise(const StepOracle& oracle, const StepCase& c, size_t rank,
                           const Divisor& divisor, const Numbers& got, Expected& expected) {
  if (divisor.words.empty()) return;
  Numbers whole = oracle.unclipped();
  for (double& g : whole) g *= divisor.factor();
  Expected scaled = expected;
  scaled.values = oracle.layout.part(clipped(whole, norm(whole), c.max_norm), rank);
  for (double& tolerance : scaled.tolerance) tolerance *= std::max(1.0, divisor.factor());
  if (lab::grading::difference(got, scaled).empty())
    expected.mistakes.push_back({got, divisor.words});
}

void add_mistakes(const StepOracle& oracle, const StepCase& c, size_t rank, Expected& expected) {
  if (c.leftover != 0) {
    Numbers with_leftover = expected.values;
    for (double& g : with_leftover) g += c.leftover;
    expected.mistakes.push_back({with_leftover,
                                 "the gradients from before the step are still in them: call "
                                 "stage.zero_gradients() first, on every rank"});
  }
  if (c.max_norm > 0) add_clipping_mistakes(oracle, c, rank, expected);
  Parcel input = c.oracle_input();
  input.set("loss_of_a_copy", 1);
  const Parcel copied = lab::grading::reference("oracle", input);
  expected.mistakes.push_back(
      {oracle.layout.part(lab::grading::to_doubles(copied.tensor("gradients.0")), rank),
       "the backward pass began with the logits themselves: begin with their gradient, which the "
       "loss leaves in the tensor that it is given"});
}

}  // namespace

void expect_gradients(const std::vector<Parcel>& results, const StepOracle& oracle,
                      const StepCase& c) {
  const Numbers whole = oracle.whole("gradients.0");
  const double allowed = kTolerance * lab::grading::largest_magnitude(whole);
  const std::vector<Numbers> got = pipeline_tests::tensors_of(results, "gradients.0");
  const Divisor divisor(results, c, 0);
  const auto expected_gradients = [&](size_t rank) {
    Expected expected{.what = "the gradients that the optimizer got",
                      .values = oracle.layout.part(whole, rank),
                      .tolerance = {allowed},
                      .name = [&, rank](size_t i) { return oracle.layout.name(rank, i); },
                      .mistakes = {},
                      .if_not_finite = ""};
    if (lab::grading::difference(got[rank], expected).empty()) return expected;
    add_divided_otherwise(oracle, c, rank, divisor, got[rank], expected);
    add_mistakes(oracle, c, rank, expected);
    return expected;
  };
  std::function<std::string(size_t)> details;
  if (!divisor.words.empty())
    details = [&](size_t) {
      return fmt::format("loss was called with total_targets = {}; the batch has {}", divisor.got,
                         divisor.right);
    };
  pipeline_tests::expect_on_every_rank(got, pipeline_tests::Blame::kFromTheFirst,
                                       expected_gradients, details);
}

}  // namespace lab04
