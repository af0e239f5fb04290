// What the optimizer should get on every rank, and what it gets by well-known mistakes.
#include <fmt/format.h>

#include <cmath>

#include "tests/labs/02_gradient_allreduce/verdict_step_judges.h"

namespace lab02 {
namespace {

using lab::grading::Expected;
using lab::grading::Parcel;
using Microbatch = StepParts::Microbatch;

/// A way to weigh the microbatches of all ranks.
struct Weighing {
  StepParts::Factor factor;
  std::string message;
};

std::vector<Weighing> wrong_weighings(const StepParts& p, const StepCase& c) {
  const auto n = static_cast<double>(c.ranks());
  double all_sequences = 0;
  double all_counts = 0;
  for (size_t r = 0; r < c.ranks(); ++r) {
    all_sequences += p.sequences[r];
    all_counts += p.counts[r];
  }
  const auto of_own = [&p](const Microbatch& b) {
    return p.targets[b.rank] > 0 ? 1 / p.targets[b.rank] : 0.0;
  };
  const auto is_last = [&p](const Microbatch& b) {
    return static_cast<double>(b.number + 1) == p.counts[b.rank];
  };
  return {
      {of_own,
       fmt::format("the means of the ranks are added up ({} ranks): summed, and not averaged?", n)},
      {[=](const Microbatch& b) { return of_own(b) / n; },
       "a mean of means over the ranks: give average_gradients the number of this rank's targets"},
      {[=, &p](const Microbatch& b) { return p.counts[b.rank] / all_counts * of_own(b); },
       "each rank is weighed by its number of microbatches: give average_gradients its targets"},
      {[=, &p](const Microbatch& b) { return p.sequences[b.rank] / all_sequences * of_own(b); },
       "each rank is weighed by its number of sequences: give average_gradients its targets"},
      {[&p](const Microbatch& b) {
         return b.targets > 0 ? p.targets[b.rank] / p.total / b.targets : 0.0;
       },
       "the means of a rank's microbatches are added up: pass the number of targets of all of this "
       "rank's microbatches to loss"},
      {[&p](const Microbatch& b) {
         return b.targets > 0 ? p.targets[b.rank] / p.total / b.targets / p.counts[b.rank] : 0.0;
       },
       "a mean of means over a rank's microbatches: pass the number of targets of all of this "
       "rank's microbatches to loss"},
      {[&p](const Microbatch& b) { return p.targets[b.rank] / p.total; },
       "a sum over this rank's targets is averaged: pass their number to loss"},
      {[&p](const Microbatch& b) { return p.targets[b.rank] / p.total / p.total; },
       "divided by the targets of all ranks before average_gradients, which divides too: loss "
       "gives "
       "the mean over this rank's own targets"},
      {[=, &p](const Microbatch& b) { return is_last(b) ? 1 / p.total : 0.0; },
       "of each rank only the last microbatch arrived: is something zeroed or overwritten inside "
       "the loop?"},
  };
}

/// Why a rank's optimizer got this rank's own gradients.
std::string why_own(const Parcel& result) {
  const std::string& events = result.text("events0");
  const size_t average = events.find("average");
  const size_t update = events.find("update");
  if (average != std::string::npos && average > update)
    return "the optimizer stepped before the gradients were averaged: it got this rank's own";
  if (lab::grading::traffic_of(result, lab::OpKind::kAllReduce).operations == 0)
    return "the optimizer got this rank's own gradients, and no message was sent: every rank "
           "trains for itself. Call average_gradients before the update";
  return "the optimizer got this rank's own gradients: was the average written back into "
         "model.gradients(), on every rank and before the update?";
}

void add_clipping_mistakes(const StepParts& p, const StepCase& c, const Numbers& unclipped,
                           Expected& expected) {
  expected.mistakes.push_back(
      {unclipped,
       "the gradients are not clipped when the optimizer gets them: call lab::clip_gradients "
       "after averaging and before the update"});
  Numbers clipped_first(unclipped.size(), 0.0);
  for (size_t r = 0; r < c.ranks(); ++r) {
    const Numbers own = clipped(p.of_rank(r), c.max_norm);
    for (size_t i = 0; i < own.size(); ++i) clipped_first[i] += p.targets[r] / p.total * own[i];
  }
  expected.mistakes.push_back(
      {clipped_first,
       "the gradients were clipped before they were averaged: it is the norm of the average that "
       "counts, and each rank has cut off another part of its own"});
}

std::string totals_in_words(const Parcel& result, const StepParts& p, size_t rank) {
  const Numbers totals = result.numbers("totals0");
  if (p.counts[rank] == 0) return "this rank has no microbatch in this step";
  if (totals.empty()) return "the loss that is handed in was never called";
  std::string text = "loss was called with total_targets =";
  for (double total : totals) text += fmt::format(" {}", total);
  return text +
         fmt::format("; this rank has {} targets, all ranks have {}", p.targets[rank], p.total);
}

}  // namespace

Expected expected_gradients(const StepParts& p, const StepCase& c, size_t rank,
                            const Parcel& result) {
  const Numbers unclipped = p.combine([&](const Microbatch&) { return 1 / p.total; });
  Expected expected{.what = "the gradients",
                    .values = clipped(unclipped, c.max_norm),
                    .tolerance = p.magnitude(),
                    .name = [&p](size_t i) { return p.name(i); },
                    .mistakes = {},
                    .if_not_finite = ""};
  const double largest = lab::grading::largest_magnitude(unclipped);
  for (double& tolerance : expected.tolerance) tolerance = kTolerance * (tolerance + largest);

  if (c.ranks() > 1) {
    expected.mistakes.push_back({clipped(p.of_rank(rank), c.max_norm), why_own(result)});
    const double share = p.targets[rank] / p.total;
    Numbers own_share = p.of_rank(rank);
    for (double& g : own_share) g *= share;
    expected.mistakes.push_back(
        {clipped(own_share, c.max_norm),
         "the optimizer got this rank's share of the mean only: nothing of the other ranks"});
  }
  for (const Weighing& weighing : wrong_weighings(p, c))
    expected.mistakes.push_back(
        {clipped(p.combine(weighing.factor), c.max_norm), "the gradients: " + weighing.message});
  if (c.leftover != 0) {
    Numbers with_leftover = unclipped;
    for (double& g : with_leftover) g += c.leftover;
    expected.mistakes.push_back({with_leftover,
                                 "the gradients from before the step are still in them: call "
                                 "model.zero_gradients() first"});
  }
  if (c.max_norm > 0) add_clipping_mistakes(p, c, unclipped, expected);
  return expected;
}

void expect_gradients(const std::vector<Parcel>& results, const StepParts& p, const StepCase& c) {
  expect_on_every_rank(
      tensors_of(results, "gradients0"),
      [&](size_t rank) { return expected_gradients(p, c, rank, results[rank]); },
      [&](size_t rank) { return totals_in_words(results[rank], p, rank); });
}

}  // namespace lab02
