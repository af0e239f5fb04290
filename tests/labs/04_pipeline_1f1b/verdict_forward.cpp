// Verdict on task 2: what each stage returns, and what has travelled for it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/labs/04_pipeline_1f1b/verdict_messages.h"
#include "tests/labs/04_pipeline_1f1b/verdict_passes.h"
#include "tests/labs/pipeline/every_rank.h"
#include "tests/labs/pipeline/same_bits.h"
#include "tests/labs/pipeline/tiny_pipeline.h"

namespace lab04 {
namespace {

using lab::grading::Expected;
using lab::grading::GroupOptions;
using lab::grading::Parcel;
using lab::grading::stop;
using pipeline_tests::Blame;

std::vector<Parcel> inputs_of(const Passes& passes) {
  std::vector<Parcel> inputs(passes.ranks(), passes.rank_input());
  for (size_t rank = 0; rank < inputs.size(); ++rank)
    for (size_t k = 0; k < passes.tokens.size(); ++k)
      inputs[rank].set(fmt::format("batch.{}", k),
                       rank == 0 ? passes.tokens[k] : decoy(passes.tokens[k], rank));
  return inputs;
}

Numbers output_of(const Parcel& chain, size_t pass, size_t rank) {
  return lab::grading::to_doubles(chain.tensor(fmt::format("output.{}.{}", pass, rank)));
}

void expect_shape(const Parcel& result, const Passes& passes, size_t k, size_t rank) {
  const Numbers shape = result.numbers(fmt::format("shape.{}", k));
  const bool last = rank + 1 == passes.ranks();
  const lab::TokenBatch& tokens = passes.tokens[k];
  const int64_t width = last ? pipeline_tests::kVocab : pipeline_tests::kDim;
  if (shape.empty())
    stop(
        fmt::format("rank {}: forward returns a tensor without memory: every stage returns what "
                    "it has computed",
                    rank));
  if (shape != Numbers{static_cast<double>(tokens.batch), static_cast<double>(tokens.length),
                       static_cast<double>(width)})
    stop(
        fmt::format("rank {}: forward returns a tensor of {} dimensions and {} in a row: it "
                    "should be the {} [{}, {}, {}]",
                    rank, shape.size(), shape.back(), last ? "logits" : "hidden states",
                    tokens.batch, tokens.length, width));
  if (result.number(fmt::format("in_flight.{}", k)) == 0)
    stop(
        fmt::format("rank {}: the stage keeps no activations after forward: its backward pass "
                    "will need them; call stage.forward, and not discard",
                    rank));
}

/// What ranks return when all of them make the same mistake. Made only where one has happened.
void add_mistakes(const Passes& passes, size_t k, size_t rank, Expected& expected) {
  const auto chain = [&](const std::string& wrong) {
    return output_of(lab::grading::reference("chain", passes.chain_input(wrong)), k, rank);
  };
  expected.mistakes = {
      {chain("zeros"),
       "computed on zeros, not on what the stage before has sent: receive first, then compute"},
      {chain("input"),
       "the stage before has sent its own input on: send what it has computed from it"},
      {chain("overwritten"),
       "computed on numbers that were written over the output of the stage before, after its "
       "forward had returned: a tensor stays as it is until wait() of its isend"},
  };
  if (rank > 0)
    expected.mistakes.push_back(
        {output_of(lab::grading::reference("chain", passes.chain_input()), k, rank - 1),
         "forward returns the stage's input: return what the stage has computed from it"});
}

void expect_outputs(const std::vector<Parcel>& results, const Passes& passes, const Parcel& chain,
                    size_t k) {
  std::vector<Numbers> got;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    expect_shape(results[rank], passes, k, rank);
    got.push_back(lab::grading::to_doubles(results[rank].tensor(fmt::format("output.{}", k))));
  }
  const auto expected_output = [&](size_t rank) {
    const bool last = rank + 1 == passes.ranks();
    Expected expected{.what = last ? "the logits" : "the hidden states that forward returns",
                      .values = output_of(chain, k, rank),
                      .tolerance = {},
                      .name = {},
                      .mistakes = {},
                      .if_not_finite = ""};
    expected.tolerance = {kTolerance * lab::grading::largest_magnitude(expected.values)};
    if (!lab::grading::difference(got[rank], expected).empty())
      add_mistakes(passes, k, rank, expected);
    return expected;
  };
  pipeline_tests::expect_on_every_rank(got, Blame::kFromTheFirst, expected_output);
  const Numbers logits = lab::grading::to_doubles(chain.tensor(fmt::format("logits.{}", k)));
  pipeline_tests::confirm_bits(got.back(), logits, "the logits");
}

/// Runs the student's forward; ends the test as failed unless every rank returns what it should.
std::vector<Parcel> judged_forward(const Passes& passes, const GroupOptions& options) {
  const std::vector<Parcel> results =
      lab::grading::student_group("forward", inputs_of(passes), options);
  const Parcel chain = lab::grading::reference("chain", passes.chain_input());
  for (size_t k = 0; k < passes.tokens.size(); ++k) expect_outputs(results, passes, chain, k);
  return results;
}

void expect_forward(const Numbers& counts, const GroupOptions& options) {
  const Passes passes{.counts = counts};
  expect_messages(judged_forward(passes, options), Way::kForward, passes.number(), passes.bytes());
}

using pipeline_tests::late;

TEST(Task2, ThreeStages) { expect_forward({2, 2, 2}, pipeline_tests::buffered()); }

TEST(Task2, SendsBlock) { expect_forward({2, 2, 2}, late(21)); }

TEST(Task2, OneStageSendsNothing) { expect_forward({6}, late(22)); }

TEST(Task2, TwoStages) { expect_forward({5, 1}, late(23)); }

TEST(Task2, UnevenStages) { expect_forward({3, 2, 1}, late(24)); }

TEST(Task2, SixStages) { expect_forward({1, 1, 1, 1, 1, 1}, late(25)); }

TEST(Task2, ThreeProcesses) { expect_forward({2, 3, 1}, pipeline_tests::over_gloo()); }

/// A rank that leaves would take with it what it has posted and not waited for.
TEST(Task2, PostedSendsAreWaitedFor) {
  judged_forward({.counts = {2, 2, 2}, .stay = true}, late(26));
}

}  // namespace
}  // namespace lab04
