// Verdict on task 3: the gradients of every stage's weights, and what has travelled for them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/labs/04_pipeline_1f1b/verdict_messages.h"
#include "tests/labs/04_pipeline_1f1b/verdict_passes.h"
#include "tests/labs/pipeline/every_rank.h"
#include "tests/labs/pipeline/same_bits.h"
#include "tests/labs/pipeline/stage_layout.h"

namespace lab04 {
namespace {

using lab::grading::Expected;
using lab::grading::GroupOptions;
using lab::grading::Parcel;
using lab::grading::stop;
using pipeline_tests::Blame;
using pipeline_tests::StageLayout;

/// Each stage gets what the forward pass would have brought it.
std::vector<Parcel> inputs_of(const Passes& passes, const Parcel& chain) {
  std::vector<Parcel> inputs(passes.ranks(), passes.rank_input());
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    for (size_t k = 0; k < passes.tokens.size(); ++k) {
      inputs[rank].set(fmt::format("batch.{}", k), decoy(passes.tokens[k], rank));
      if (rank == 0)
        inputs[rank].set(fmt::format("tokens.{}", k), passes.tokens[k]);
      else
        inputs[rank].set(fmt::format("input.{}", k),
                         chain.tensor(fmt::format("output.{}.{}", k, rank - 1)));
      if (rank + 1 == inputs.size()) {
        const std::string entry = fmt::format("logits_gradient.{}", k);
        inputs[rank].set(entry, chain.tensor(entry));
      }
    }
  return inputs;
}

Numbers gradients(const Parcel& parcel, const std::string& entry, size_t k) {
  return lab::grading::to_doubles(parcel.tensor(fmt::format("{}.{}", entry, k)));
}

void add_mistakes(const Passes& passes, const StageLayout& layout, const Parcel& chain, size_t k,
                  size_t rank, bool in_flight, Expected& expected) {
  const auto wrong_chain = [&](const std::string& wrong) {
    const Parcel parcel = lab::grading::reference("chain", passes.chain_input(wrong));
    return layout.part(gradients(parcel, "wrong_gradients", k), rank);
  };
  const Numbers before = k > 0 ? layout.part(gradients(chain, "gradients", k - 1), rank)
                               : Numbers(expected.values.size(), passes.leftover);
  expected.mistakes.push_back(
      {before, in_flight ? "the stage's gradients are as before: stage.backward was not called"
                         : "the stage's gradients are as before: stage.backward got zeros, not "
                           "what the stage behind has sent; receive first, then compute"});
  if (rank + 1 < passes.ranks())
    expected.mistakes.push_back(
        {wrong_chain("output_gradient"),
         "a stage behind has sent the gradient of its output on: send what stage.backward "
         "returns, the gradient of its input"});
  Numbers own = expected.values;
  for (size_t i = 0; i < own.size(); ++i) own[i] -= before[i];
  expected.mistakes.push_back(
      {own,
       "what was in the stage's gradients before is gone: backward adds to them, and train_step "
       "sets them to zero"});
}

void expect_gradients(const std::vector<Parcel>& results, const Passes& passes, const Parcel& chain,
                      size_t k) {
  const StageLayout layout(chain, passes.counts);
  const Numbers whole = gradients(chain, "gradients", k);
  const double largest = lab::grading::largest_magnitude(whole);
  const std::vector<Numbers> got =
      pipeline_tests::tensors_of(results, fmt::format("gradients.{}", k));
  const auto in_flight = [&](size_t rank) {
    return results[rank].number(fmt::format("in_flight.{}", k)) != 0;
  };
  const auto expected_gradients = [&](size_t rank) {
    Expected expected{.what = "the gradients",
                      .values = layout.part(whole, rank),
                      .tolerance = {kTolerance * std::max(largest, 1.0 * passes.leftover)},
                      .name = [&layout, rank](size_t i) { return layout.name(rank, i); },
                      .mistakes = {},
                      .if_not_finite = ""};
    if (!lab::grading::difference(got[rank], expected).empty())
      add_mistakes(passes, layout, chain, k, rank, in_flight(rank), expected);
    return expected;
  };
  pipeline_tests::expect_on_every_rank(got, Blame::kFromTheLast, expected_gradients);
  for (size_t rank = 0; rank < results.size(); ++rank)
    if (in_flight(rank))
      stop(fmt::format("rank {}: the stage still holds activations after backward", rank));
  pipeline_tests::confirm_bits(pipeline_tests::joined(got), whole, "the gradients");
}

void expect_backward(const Passes& passes, const GroupOptions& options) {
  const Parcel chain = lab::grading::reference("chain", passes.chain_input());
  const std::vector<Parcel> results =
      lab::grading::student_group("backward", inputs_of(passes, chain), options);
  for (size_t k = 0; k < passes.tokens.size(); ++k) expect_gradients(results, passes, chain, k);
  expect_messages(results, Way::kBackward, passes.number(), passes.bytes());
}

using pipeline_tests::late;

TEST(Task3, ThreeStages) { expect_backward({.counts = {2, 2, 2}}, pipeline_tests::buffered()); }

TEST(Task3, SendsBlock) { expect_backward({.counts = {2, 2, 2}}, late(31)); }

TEST(Task3, AddsToTheGradients) {
  expect_backward({.counts = {1, 3, 2}, .leftover = 0.25F}, late(32));
}

TEST(Task3, OneStageSendsNothing) { expect_backward({.counts = {6}}, late(33)); }

TEST(Task3, TwoStages) { expect_backward({.counts = {5, 1}}, late(34)); }

TEST(Task3, SixStages) { expect_backward({.counts = {1, 1, 1, 1, 1, 1}}, late(35)); }

TEST(Task3, ThreeProcesses) { expect_backward({.counts = {2, 3, 1}}, pipeline_tests::over_gloo()); }

}  // namespace
}  // namespace lab04
