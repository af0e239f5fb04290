#include "tests/grading/training_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/grading/clipping_mistakes.h"

namespace lab::grading {
namespace {

using Microbatch = MicrobatchPart;

bool loss_got_all_targets(const TrainingStep& s) {
  const Numbers totals = s.result.numbers(s.entry("totals"));
  return !totals.empty() &&
         std::ranges::all_of(totals, [&](double total) { return total == s.all.targets; });
}

/// `p`: what the contract divides by the targets of.
std::vector<Weighing> wrong_weighings(const TrainingStep& s, const StepParts& p) {
  const double total = p.targets;
  double sequences = 0;
  double positions = 0;
  const auto count = static_cast<double>(p.microbatches.size());
  for (const Microbatch& b : p.microbatches) {
    sequences += b.sequences;
    positions += b.positions;
  }
  const auto n = static_cast<double>(s.training.replicas);
  const auto own = [&p](const Microbatch& b) {
    return p.targets_of(b.replica) > 0 ? 1 / p.targets_of(b.replica) : 0.0;
  };
  const auto of_itself = [](const Microbatch& b) { return b.targets > 0 ? 1 / b.targets : 0.0; };
  const auto sequences_of = [&p](size_t replica) {
    double sum = 0;
    for (const Microbatch& b : p.microbatches) sum += b.replica == replica ? b.sequences : 0;
    return sum;
  };
  const auto tokens_of = [&p](size_t replica) {
    double sum = 0;
    for (const Microbatch& b : p.microbatches)
      sum += b.replica == replica ? b.positions + b.sequences : 0;
    return sum;
  };
  const auto is_last = [&p](const Microbatch& b) {
    return static_cast<double>(b.number + 1) == p.count_of(b.replica);
  };
  std::vector<Weighing> all;
  if (s.contract.weighings) all = s.contract.weighings(s.all, s.replica);
  std::vector<Weighing> of_replicas;
  if (&p == &s.all && s.training.replicas > 1)
    of_replicas = {
        {fmt::format("the means of the ranks are added up: summed over {} replicas, and not "
                     "averaged?",
                     n),
         own, true},
        {"a mean of means over the ranks: every rank counts the same, however many targets it has; "
         "weight each by its share of all targets",
         [=](const Microbatch& b) { return own(b) / n; }, true},
        {"each rank is weighted by its number of microbatches, not by its targets",
         [=, &p](const Microbatch& b) { return p.count_of(b.replica) / count * own(b); }, true},
        {"each rank is weighted by its number of sequences, not by its targets",
         [=](const Microbatch& b) { return sequences_of(b.replica) / sequences * own(b); }, true},
        {"each rank is weighted by its number of tokens, padding included, not by its targets",
         [=](const Microbatch& b) {
           return tokens_of(b.replica) / (positions + sequences) * own(b);
         },
         true},
        {"divided by the number of ranks on top of the number of targets: averaged twice",
         [=](const Microbatch&) { return 1 / total / n; }},
        {"this rank's own only, the mean over its own targets: nothing of the other ranks; " +
             s.contract.how_to_average,
         [=, r = s.replica](const Microbatch& b) { return b.replica == r ? own(b) : 0.0; }, true},
        {"this rank's share of the mean only: nothing of the other ranks was added",
         [=, r = s.replica](const Microbatch& b) { return b.replica == r ? 1 / total : 0.0; }},
        {"a sum over each rank's targets is averaged: pass the number of its targets to loss",
         [=, &p](const Microbatch& b) { return p.targets_of(b.replica) / total; }, true},
        {"the means of a rank's microbatches are added up: pass the number of targets of all of "
         "its microbatches to loss",
         [=, &p](const Microbatch& b) { return p.targets_of(b.replica) / total * of_itself(b); },
         true},
        {"a mean of means over a rank's microbatches: pass the number of targets of all of its "
         "microbatches to loss",
         [=, &p](const Microbatch& b) {
           return p.targets_of(b.replica) / total * of_itself(b) / p.count_of(b.replica);
         },
         true},
    };
  std::vector<Weighing> always = {
      {"every microbatch is divided by its own targets, and the means are added up: pass the "
       "targets of the whole step to loss",
       of_itself, true},
      {"a mean of means: every microbatch counts the same, however many targets it has; pass the "
       "targets of the whole step to loss",
       [=](const Microbatch& b) { return of_itself(b) / count; }, true},
      {"a sum over the targets, not a mean: divide by the number of targets of the step",
       [](const Microbatch&) { return 1.0; }},
      {"divided by the number of targets twice",
       [=](const Microbatch&) { return 1 / total / total; }},
      {"divided by the number of microbatches as well, although loss has divided by all targets "
       "already: averaged twice",
       [=](const Microbatch&) { return 1 / total / count; }},
      {"divided by the number of microbatches, not of targets",
       [=](const Microbatch&) { return 1 / count; }, true},
      {"divided by the number of sequences, not of targets",
       [=](const Microbatch&) { return 1 / sequences; }, true},
      {"padding is counted as a target: a position whose next token is lab::kPadding predicts "
       "nothing; TokenBatch::target_count() leaves it out",
       [=](const Microbatch&) { return 1 / positions; }, true},
      {"divided by all B T positions, not by the number of targets: TokenBatch::target_count() "
       "counts them",
       [=](const Microbatch&) { return 1 / (positions + sequences); }, true},
      {"the targets of the first microbatch, times the number of microbatches, are taken for the "
       "number of targets of the step: microbatches may have different numbers of targets",
       [=, first = p.microbatches[0].targets](const Microbatch&) {
         return first > 0 ? 1 / (first * count) : 0.0;
       },
       true},
      {"only the last microbatch arrived: is something zeroed or overwritten inside the loop?",
       [=](const Microbatch& b) { return is_last(b) ? 1 / total : 0.0; }},
      {"only the first microbatch arrived",
       [=](const Microbatch& b) { return b.number == 0 ? 1 / total : 0.0; }},
      {count == 1 ? "they are 0: is zero_gradients called after the backward pass, or is no "
                    "backward pass made?"
                  : "the last microbatch is missing",
       [=](const Microbatch& b) { return is_last(b) ? 0.0 : 1 / total; }},
      {"the first microbatch is missing",
       [=](const Microbatch& b) { return b.number == 0 ? 0.0 : 1 / total; }},
      {"double what is right: added up twice?", [=](const Microbatch&) { return 2 / total; }},
  };
  std::vector<Weighing> of_earlier_steps;
  for (const double targets : s.earlier_targets)
    of_earlier_steps.push_back(
        {"divided by the number of targets of an earlier step: is something kept from one "
         "call to the next?",
         [=](const Microbatch&) { return targets > 0 ? 1 / targets : 0.0; }, true});
  for (const std::vector<Weighing>* more : {&of_replicas, &of_earlier_steps, &always})
    all.insert(all.end(), more->begin(), more->end());
  if (!loss_got_all_targets(s)) return all;
  if (s.contract.loss_gets_all_targets)
    std::erase_if(all, &Weighing::by_total);
  else if (s.contract.loss == StepContract::Loss::kOwnMean && s.own.targets < s.all.targets)
    all.insert(all.begin(),
               {"loss was given the number of targets of all ranks: pass this rank's own number; "
                "the mean over all ranks is taken afterwards",
                [=, &p](const Microbatch& b) { return p.targets_of(b.replica) / total / total; }});
  return all;
}

/// Hypotheses about a step that should be this rank's own: something of the other ranks is in it.
void add_averaging_mistakes(const TrainingStep& s, std::vector<Mistake>& mistakes) {
  const auto n = static_cast<double>(s.training.replicas);
  if (s.training.replicas == 1) return;
  const auto add = [&](const StepParts& parts, const StepParts::Weight& weight,
                       const std::string& message) {
    mistakes.push_back({s.part(clipped(parts.combine(weight), s.training.max_norm)),
                        s.contract.gradients + ": " + message});
  };
  const auto own_mean = [&](const Microbatch& b) {
    return b.targets > 0 ? 1 / s.all.targets_of(b.replica) : 0.0;
  };
  const std::string here = "; here each rank makes its own update, of its own gradients";
  if (s.all.targets > 0)
    add(
        s.all, [&](const Microbatch&) { return 1 / s.all.targets; },
        "the gradients of all ranks are averaged, as in lab 02" + here);
  add(
      s.all, [&](const Microbatch& b) { return own_mean(b) / n; },
      "the gradients of all ranks are averaged, every rank's counting the same" + here);
  add(s.all, own_mean, "the gradients of all ranks are added up" + here);
  add(
      s.own, [&](const Microbatch& b) { return own_mean(b) / n; },
      "the gradients are divided by the number of ranks: what a rank learns is the mean over its "
      "own targets");
}

/// Of what the replicas add up, the largest in each place.
Numbers largest_of_replicas(const TrainingStep& s) {
  std::vector<Numbers> parts;
  for (size_t r = 0; r < static_cast<size_t>(s.training.replicas); ++r)
    parts.push_back(s.all.combine(
        [&](const Microbatch& b) { return b.replica == r ? 1 / s.all.targets : 0.0; }));
  return largest_in_each_place(parts);
}

bool is_multiple(const Numbers& a, const Numbers& b) {
  double product = 0;
  for (size_t i = 0; i < a.size(); ++i) product += a[i] * b[i];
  return product >= (1 - 1e-9) * norm(a) * norm(b);
}

/// Hypotheses about a loss in which those of earlier steps are kept.
void add_kept_losses(const TrainingStep& s, double right,
                     const std::function<void(double loss, const std::string& message)>& add) {
  if (s.earlier_losses.empty()) return;
  const double last = s.earlier_losses.back();
  const std::string kept = "; every step starts from 0, but a static variable keeps its value";
  add(last + right, "it is added to that of the previous step" + kept);
  add(s.earlier_losses.front(), "that of the first step" + kept);
  add(last, "that of the previous step" + kept);
  double sum = right;
  for (const double loss : s.earlier_losses) sum += loss;
  const auto steps = static_cast<double>(s.earlier_losses.size() + 1);
  for (const double share : {1 / steps, 0.5, 0.1, 0.05, 0.01, 0.9})
    add(last + share * (right - last), "a running mean over the steps: return that of this step");
  add(sum / steps, "a running mean over the steps: return that of this step");
}

/// The sum over this rank's targets, with the weights of a separate entry.
double loss_with(const TrainingStep& s, const char* weights_entry) {
  const std::vector<Numbers> weights(static_cast<size_t>(s.training.replicas),
                                     to_doubles(s.result.tensor(s.entry(weights_entry))));
  return s.oracle.parts(s.step, weights).combine_losses([&](const Microbatch& b) {
    return b.replica == s.replica ? 1.0 : 0.0;
  });
}

}  // namespace

std::vector<Mistake> gradient_mistakes(const TrainingStep& s) {
  const StepParts& p = s.parts();
  const double limit = s.training.max_norm;
  const std::string what = s.contract.gradients + ": ";
  const Numbers whole = p.mean();
  std::vector<Mistake> mistakes;
  if (s.training.model.tied_head) {
    StepParts early = p;
    for (Microbatch& b : early.microbatches) b.gradient = b.early;
    mistakes.push_back({s.part(clipped(early.mean(), limit)),
                        what +
                            "the head's share is missing: a tied head adds it to the embedding's "
                            "when gradients() is called; call it after the last backward pass"});
    StepParts late = p;
    for (Microbatch& b : late.microbatches)
      if (b.replica != s.replica) b.gradient = b.early;
    mistakes.push_back({s.part(clipped(late.mean(), limit)),
                        what +
                            "the head's share is that of this replica alone: a tied head adds it "
                            "to the embedding's when gradients() is called; call it after the last "
                            "backward pass, and before the all_reduce"});
  }
  add_clipping_mistakes(s, whole, mistakes);
  if (p.targets > 0)
    for (const Weighing& weighing : wrong_weighings(s, p)) {
      const Numbers other = p.combine(weighing.weight);
      // When clipped, it says no more than that they are scaled to the limit.
      if (limit > 0 && norm(other) > limit && is_multiple(other, whole)) continue;
      mistakes.push_back({s.part(clipped(other, limit)), what + weighing.message});
    }
  if (&p == &s.own) add_averaging_mistakes(s, mistakes);
  if (&p == &s.all && s.training.replicas > 1 && p.targets > 0)
    mistakes.push_back({s.part(clipped(largest_of_replicas(s), limit)),
                        what + "the largest of the replicas' parts, not their sum: all_reduce adds "
                               "up unless it is given ReduceOp::kMax"});
  const std::string not_zeroed =
      "what was there before the step is still in them: zero the gradients first";
  for (const double times : {1.0, static_cast<double>(s.training.replicas)}) {
    Numbers with_before = s.part(whole);
    for (size_t i = 0; i < with_before.size() && i < s.before.size(); ++i)
      with_before[i] += times * s.before[i];
    mistakes.push_back({with_before, what + not_zeroed});
    if (limit == 0 || s.before_of_stages.size() != whole.size()) continue;
    Numbers all_with_before = whole;
    for (size_t i = 0; i < whole.size(); ++i) all_with_before[i] += times * s.before_of_stages[i];
    mistakes.push_back({s.part(clipped(all_with_before, limit)), what + not_zeroed});
  }
  mistakes.push_back({s.before, what + "those from before the step: is the update made before "
                                       "the backward pass?"});
  return mistakes;
}

std::vector<Mistake> loss_mistakes(const TrainingStep& s, const StepParts& parts,
                                   const StepParts::Weight& right) {
  std::vector<Mistake> mistakes;
  const auto add = [&](double loss, const std::string& message) {
    mistakes.push_back({{loss}, "the returned loss: " + message});
  };
  const double of_all = s.all.targets > 0 ? 1 / s.all.targets : 0.0;
  const double of_own = s.own.targets > 0 ? 1 / s.own.targets : 0.0;
  const bool returns_one = s.is_last_stage() || s.contract.loss == StepContract::Loss::kOwnMean;
  const auto add_of = [&](const StepParts& p, double factor, const char* message) {
    add(p.combine_losses([&](const Microbatch&) { return factor; }),
        returns_one ? message : "only the last stage returns it; the others return 0");
  };
  add_of(s.all, of_all,
         s.contract.loss == StepContract::Loss::kOwnMean
             ? "the mean over all ranks; return this rank's own, as the contract says"
             : "that of all replicas added up: return this rank's part");
  add_of(s.own, of_own,
         "the mean over this rank's own targets: divide by the targets of all ranks");
  add_of(s.own, of_all, "this rank's sum divided by the targets of all ranks: divide by its own");
  add(0, "it is 0: return what loss returned, added up over the microbatches");
  for (const char* later : {"updated", "weights"})
    if (s.training.stages() == 1 && of_own > 0)
      add(of_own * loss_with(s, later),
          "that of the weights after the update: return what loss returned before it");
  add_kept_losses(s, parts.combine_losses(right), add);
  if (parts.targets > 0)
    for (const Weighing& weighing : wrong_weighings(s, parts))
      add(s.own.combine_losses(weighing.weight), weighing.message);
  return mistakes;
}

}  // namespace lab::grading
