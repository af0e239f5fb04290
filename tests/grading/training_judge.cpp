// Judging training steps, and naming the mistake that explains a wrong one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tests/grading/training_oracle.h"
#include "tests/grading/verdict.h"

namespace lab::grading {
namespace {

using Microbatch = MicrobatchPart;

// Of the sum of the absolute terms: another order of summation is no mistake.
constexpr double kTolerance = 1e-6;
// Times what the oracle's own gradients are off by, as estimated once.
constexpr double kRoundings = 4;

/// One step of one rank, with all that is known about it.
struct Step {
  const TrainingCase& training;
  const StepContract& contract;
  TrainingOracle& oracle;
  size_t step = 0;
  const StepParts& all;  // of all replicas
  const StepParts& own;  // of this rank's replica
  size_t replica = 0;
  int stage = 0;
  const Parcel& result;
  Numbers before;                              // the gradients that were there when the step began
  const std::vector<double>& earlier_targets;  // of the steps before this one
  Numbers earlier_losses = {};                 // that this rank returned from them
  Numbers before_of_stages = {};               // `before` of all stages of this rank's replica

  std::string entry(const char* name) const { return fmt::format("{}.{}", name, step); }
  /// Those over which the contract averages.
  const StepParts& parts() const {
    return contract.gradient == StepContract::Gradient::kOwn ? own : all;
  }
  /// Told before what is wrong with a rank, unless there is only one.
  std::string who(size_t rank) const {
    return training.ranks() == 1 ? "" : fmt::format("rank {}: ", rank);
  }
  bool is_last_stage() const { return stage + 1 == training.stages(); }
  Numbers part(const Numbers& whole) const { return oracle.of_stage(whole, stage); }
};

/// `p`: what the contract divides by the targets of.
std::vector<Weighing> wrong_weighings(const Step& s, const StepParts& p) {
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
         own},
        {"a mean of means over the ranks: every rank counts the same, however many targets it has; "
         "weigh each by its share of all targets",
         [=](const Microbatch& b) { return own(b) / n; }},
        {"each rank is weighed by its number of microbatches, not by its targets",
         [=, &p](const Microbatch& b) { return p.count_of(b.replica) / count * own(b); }},
        {"each rank is weighed by its number of sequences, not by its targets",
         [=](const Microbatch& b) { return sequences_of(b.replica) / sequences * own(b); }},
        {"divided by the number of ranks on top of the number of targets: averaged twice",
         [=](const Microbatch&) { return 1 / total / n; }},
        {"this rank's own only, the mean over its own targets: nothing of the other ranks; " +
             s.contract.how_to_average,
         [=, r = s.replica](const Microbatch& b) { return b.replica == r ? own(b) : 0.0; }},
        {"this rank's share of the mean only: nothing of the other ranks was added",
         [=, r = s.replica](const Microbatch& b) { return b.replica == r ? 1 / total : 0.0; }},
        {"a sum over each rank's targets is averaged: pass the number of its targets to loss",
         [=, &p](const Microbatch& b) { return p.targets_of(b.replica) / total; }},
        {"the means of a rank's microbatches are added up: pass the number of targets of all of "
         "its microbatches to loss",
         [=, &p](const Microbatch& b) { return p.targets_of(b.replica) / total * of_itself(b); }},
        {"a mean of means over a rank's microbatches: pass the number of targets of all of its "
         "microbatches to loss",
         [=, &p](const Microbatch& b) {
           return p.targets_of(b.replica) / total * of_itself(b) / p.count_of(b.replica);
         }},
    };
  std::vector<Weighing> always = {
      {"every microbatch is divided by its own targets, and the means are added up: pass the "
       "targets of the whole step to loss",
       of_itself},
      {"a mean of means: every microbatch counts the same, however many targets it has; pass the "
       "targets of the whole step to loss",
       [=](const Microbatch& b) { return of_itself(b) / count; }},
      {"a sum over the targets, not a mean: divide by the number of targets of the step",
       [](const Microbatch&) { return 1.0; }},
      {"divided by the number of targets twice",
       [=](const Microbatch&) { return 1 / total / total; }},
      {"divided by the number of microbatches as well, although loss has divided by all targets "
       "already: averaged twice",
       [=](const Microbatch&) { return 1 / total / count; }},
      {"divided by the number of microbatches, not of targets",
       [=](const Microbatch&) { return 1 / count; }},
      {"divided by the number of sequences, not of targets",
       [=](const Microbatch&) { return 1 / sequences; }},
      {"padding is counted as a target: a position whose next token is lab::kPadding predicts "
       "nothing; TokenBatch::target_count() leaves it out",
       [=](const Microbatch&) { return 1 / positions; }},
      {"only the last microbatch arrived: is something zeroed or overwritten inside the loop?",
       [=](const Microbatch& b) { return is_last(b) ? 1 / total : 0.0; }},
      {"only the first microbatch arrived",
       [=](const Microbatch& b) { return b.number == 0 ? 1 / total : 0.0; }},
      {"the last microbatch is missing",
       [=](const Microbatch& b) { return is_last(b) ? 0.0 : 1 / total; }},
      {"the first microbatch is missing",
       [=](const Microbatch& b) { return b.number == 0 ? 0.0 : 1 / total; }},
      {"twice what they should be: added up twice?", [=](const Microbatch&) { return 2 / total; }},
  };
  std::vector<Weighing> of_earlier_steps;
  for (const double targets : s.earlier_targets)
    of_earlier_steps.push_back(
        {"divided by the number of targets of an earlier step: is something kept from one "
         "call to the next?",
         [=](const Microbatch&) { return targets > 0 ? 1 / targets : 0.0; }});
  for (const std::vector<Weighing>* more : {&of_replicas, &of_earlier_steps, &always})
    all.insert(all.end(), more->begin(), more->end());
  return all;
}

/// The gradients of each stage scaled as if the norm were `length(part)`.
Numbers clipped_by(const Step& s, const Numbers& whole,
                   const std::function<double(const Numbers& part)>& length) {
  Numbers part = s.part(whole);
  const double limit = s.training.max_norm;
  const double l = length(part);
  if (l > limit)
    for (double& g : part) g *= limit / l;
  return part;
}

double sum_of_stage_norms(const Step& s, const Numbers& whole) {
  double sum = 0;
  for (int stage = 0; stage < s.training.stages(); ++stage)
    sum += norm(s.oracle.of_stage(whole, stage));
  return sum;
}

/// Each tensor clipped separately.
Numbers clipped_tensors(const Step& s, const Numbers& whole) {
  const auto tensor = [&s](size_t i) {
    const std::string name = s.oracle.name(i);
    return name.substr(0, name.find(','));
  };
  Numbers all;
  for (size_t begin = 0; begin < whole.size();) {
    Numbers part;
    for (const std::string name = tensor(begin); begin < whole.size() && tensor(begin) == name;)
      part.push_back(whole[begin++]);
    part = clipped(part, s.training.max_norm);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// The sum clipped each time that a microbatch has been added.
Numbers clipped_in_the_loop(const Step& s) {
  Numbers sum(s.all.weights, 0.0);
  for (const Microbatch& b : s.parts().microbatches) {
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += b.gradient[i] / std::max(s.parts().targets, 1.0);
    sum = clipped(sum, s.training.max_norm);
  }
  return sum;
}

/// Hypotheses about clipping; the weighing is right.
void add_clipping_mistakes(const Step& s, const Numbers& whole, std::vector<Mistake>& mistakes) {
  const double limit = s.training.max_norm;
  const std::string what = "the gradients that the optimizer got: ";
  if (limit <= 0) return;
  const auto add = [&](Numbers part, const std::string& message) {
    mistakes.push_back({std::move(part), what + message});
  };
  add(s.part(whole), "not clipped: " + s.contract.how_to_clip);
  Numbers unit = whole;
  for (double& g : unit) g *= limit / norm(whole);
  add(s.part(unit),
      "scaled to max_gradient_norm although they are shorter: clipping never makes "
      "gradients longer");
  add(s.part(clipped(whole, std::floor(limit))),
      "clipped to another limit: max_gradient_norm is not a whole number, and must not be rounded");
  add(clipped_by(s, whole, [](const Numbers& part) { return norm(part); }),
      "clipped by the norm of this stage's own gradients: it is the norm of the whole model's that "
      "counts");
  add(clipped_by(s, whole,
                 [root = std::sqrt(static_cast<double>(s.training.stages()))](const Numbers& part) {
                   return root * norm(part);
                 }),
      "each stage is clipped separately, to max_gradient_norm divided by the root of the number of "
      "stages: it is the norm of the whole model's gradients that counts");
  const double sum_of_norms = sum_of_stage_norms(s, whole);
  add(clipped_by(s, whole, [&](const Numbers&) { return sum_of_norms; }),
      "clipped by the sum of the stages' norms: a norm is the root of the sum of all squares");
  const double root = std::sqrt(static_cast<double>(s.training.replicas));
  add(clipped_by(s, whole, [&](const Numbers&) { return root * norm(whole); }),
      "the norm is too large: every weight is counted once for each replica; clip over the ranks "
      "that hold the whole model once");
  add(clipped_by(s, whole, [&](const Numbers& part) { return root * norm(part); }),
      "clipped by a norm over the replicas of this stage: they have the same weights several times "
      "and none of other stages; clip over the ranks that hold the whole model once");
  if (s.training.ranks() == 1) {
    add(clipped_tensors(s, whole),
        "every tensor is clipped by its own norm: it is the norm of all gradients together that "
        "counts");
    add(clipped_by(s, whole, [](const Numbers& part) { return norm(part) + 1e-6; }),
        "scaled by max / (norm + 1e-6), as PyTorch does it: call lab::clip_gradients");
  }
  if (s.training.stages() == 1 && (s.training.replicas == 1 || &s.parts() == &s.own))
    add(clipped_in_the_loop(s), "clipped after every microbatch: clip once, when all are added up");
  if (s.training.replicas == 1) return;
  Numbers again = s.part(clipped(whole, limit));
  for (double& g : again) g *= s.training.replicas;
  add(again, "added up over the replicas once more, after clipping: one sum, before it, is enough");
  add(s.part(clipped(whole, limit / s.training.replicas)),
      "clipped to max_gradient_norm divided by the number of replicas: the gradients are those of "
      "all replicas already");
  add(clipped_by(s, whole, [&](const Numbers&) { return norm(s.own.mean()); }),
      "clipped by the norm of this rank's own gradients before averaging: it is the norm of the "
      "average that counts, the same on every rank");
  Numbers clipped_first(whole.size(), 0.0);
  for (size_t r = 0; r < static_cast<size_t>(s.training.replicas); ++r) {
    const double targets = s.all.targets_of(r);
    if (targets == 0) continue;
    const Numbers own = clipped(
        s.all.combine([&](const Microbatch& b) { return b.replica == r ? 1 / targets : 0.0; }),
        limit);
    for (size_t i = 0; i < own.size(); ++i) clipped_first[i] += targets / s.all.targets * own[i];
  }
  add(s.part(clipped_first),
      "clipped before they were averaged: it is the norm of the average that counts, and each rank "
      "has cut off a different part of its own");
}

/// Hypotheses about a step that should be this rank's own: something of the other ranks is in it.
void add_averaging_mistakes(const Step& s, std::vector<Mistake>& mistakes) {
  const auto n = static_cast<double>(s.training.replicas);
  if (s.training.replicas == 1) return;
  const auto add = [&](const StepParts& parts, const StepParts::Weight& weight,
                       const std::string& message) {
    mistakes.push_back({s.part(clipped(parts.combine(weight), s.training.max_norm)),
                        "the gradients that the optimizer got: " + message});
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

bool is_multiple(const Numbers& a, const Numbers& b) {
  double product = 0;
  for (size_t i = 0; i < a.size(); ++i) product += a[i] * b[i];
  return product >= (1 - 1e-9) * norm(a) * norm(b);
}

std::vector<Mistake> gradient_mistakes(const Step& s) {
  const StepParts& p = s.parts();
  const double limit = s.training.max_norm;
  const std::string what = "the gradients that the optimizer got: ";
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
  mistakes.push_back({s.before, what + "those from before the step: the update comes before the "
                                       "backward pass?"});
  return mistakes;
}

std::string totals_in_words(const Step& s) {
  const Numbers totals = s.result.numbers(s.entry("totals"));
  if (totals.empty()) return s.is_last_stage() ? "loss was never called in this step" : "";
  return fmt::format(
      "loss was called with total_targets = {}; this rank has {} targets, all ranks "
      "have {}",
      fmt::join(totals, ", "), s.own.targets, s.all.targets);
}

void expect_one_update(const Step& s, size_t rank) {
  const double updates = s.result.number(s.entry("updates"));
  if (updates == 0)
    stop(
        fmt::format("{}the weights are not updated: optimizer.step was never called. Every rank "
                    "makes one update in every step, even without any target",
                    s.who(rank)));
  if (updates > 1)
    stop(
        fmt::format("{}one step of training is one update: optimizer.step was called {} "
                    "times",
                    s.who(rank), updates));
  expect(s.result.number(s.entry("rate")),
         {.what = fmt::format("{}the learning rate that optimizer.step was given, which should be "
                              "that of the step as it is",
                              s.who(rank)),
          .values = {double{s.training.rate(s.step)}},
          .tolerance = {1e-8}});
}

Expected expected_gradients(const Step& s) {
  const StepParts& p = s.parts();
  const Numbers whole = p.mean();
  Expected expected{
      .what = "the gradients that the optimizer got",
      .values = s.part(clipped(whole, s.training.max_norm)),
      .tolerance = s.part(p.magnitude()),
      .name = [&s](size_t i) { return s.oracle.name(i + s.oracle.range(s.stage).first); },
      .mistakes = [&s] { return gradient_mistakes(s); },
      .if_not_finite =
          "the gradients that the optimizer got: not finite: 0 divided "
          "by 0 targets?"};
  const double largest = largest_magnitude(whole);
  for (double& tolerance : expected.tolerance)
    tolerance = kTolerance * (tolerance + largest) + kRoundings * p.rounding() + 1e-30;
  return expected;
}

/// Hypotheses about a loss in which those of earlier steps are kept.
void add_kept_losses(const Step& s, double right,
                     const std::function<void(double loss, const std::string& message)>& add) {
  if (s.earlier_losses.empty()) return;
  const double last = s.earlier_losses.back();
  const std::string kept = "; every step begins anew, and a static variable keeps its value";
  add(last + right, "it goes on from that of the step before" + kept);
  add(s.earlier_losses.front(), "that of the first step" + kept);
  add(last, "that of the step before" + kept);
  double sum = right;
  for (const double loss : s.earlier_losses) sum += loss;
  const auto steps = static_cast<double>(s.earlier_losses.size() + 1);
  for (const double share : {1 / steps, 0.5, 0.1, 0.05, 0.01, 0.9})
    add(last + share * (right - last), "a running mean over the steps: return that of this step");
  add(sum / steps, "a running mean over the steps: return that of this step");
}

/// The sum over this rank's targets, with the weights of a separate entry.
double loss_with(const Step& s, const char* weights_entry) {
  const std::vector<Numbers> weights(static_cast<size_t>(s.training.replicas),
                                     to_doubles(s.result.tensor(s.entry(weights_entry))));
  return s.oracle.parts(s.step, weights).combine_losses([&](const Microbatch& b) {
    return b.replica == s.replica ? 1.0 : 0.0;
  });
}

Expected expected_loss(const Step& s) {
  const StepParts& p = s.contract.loss == StepContract::Loss::kOwnMean ? s.own : s.all;
  StepParts::Weight right = [&p](const Microbatch&) { return p.targets > 0 ? 1 / p.targets : 0.0; };
  if (s.contract.loss == StepContract::Loss::kPartOnLastStage)
    right = [&s](const Microbatch& b) {
      return b.replica == s.replica && s.all.targets > 0 ? 1 / s.all.targets : 0.0;
    };
  const double value = s.contract.loss != StepContract::Loss::kOwnMean && !s.is_last_stage()
                           ? 0.0
                           : p.combine_losses(right);
  return {
      .what = "the returned loss",
      .values = {value},
      .tolerance = {kTolerance * std::max(std::abs(value), 1.0)},
      .mistakes =
          [&s, &p, right] {
            std::vector<Mistake> mistakes;
            const auto add = [&](double loss, const std::string& message) {
              mistakes.push_back({{loss}, "the returned loss: " + message});
            };
            const double of_all = s.all.targets > 0 ? 1 / s.all.targets : 0.0;
            const double of_own = s.own.targets > 0 ? 1 / s.own.targets : 0.0;
            const bool returns_one =
                s.is_last_stage() || s.contract.loss == StepContract::Loss::kOwnMean;
            const auto add_of = [&](const StepParts& parts, double factor, const char* message) {
              add(parts.combine_losses([&](const Microbatch&) { return factor; }),
                  returns_one ? message : "only the last stage returns it; the others return 0");
            };
            add_of(s.all, of_all,
                   s.contract.loss == StepContract::Loss::kOwnMean
                       ? "the mean over all ranks; return this rank's own, as the contract says"
                       : "that of all pipelines: return this rank's part");
            add_of(s.own, of_own,
                   "the mean over this rank's own targets: divide by the targets of all ranks");
            add_of(s.own, of_all,
                   "this rank's sum divided by the targets of all ranks: divide by its own");
            add(0, "it is 0: return what loss returned, added up over the microbatches");
            for (const char* later : {"updated", "weights"})
              if (s.training.stages() == 1 && of_own > 0)
                add(of_own * loss_with(s, later),
                    "that of the weights after the update: return what loss returned before it");
            add_kept_losses(s, p.combine_losses(right), add);
            if (p.targets > 0)
              for (const Weighing& weighing : wrong_weighings(s, p))
                add(s.own.combine_losses(weighing.weight), weighing.message);
            return mistakes;
          },
      .if_not_finite = "the returned loss: not a number; where there is no target the loss is 0"};
}

void expect_updates_only(const Step& s, size_t rank) {
  const Numbers updated = to_doubles(s.result.tensor(s.entry("updated")));
  const Numbers weights = to_doubles(s.result.tensor(s.entry("weights")));
  if (updated != weights)
    stop(
        fmt::format("{}the weights change once more after optimizer.step: a step is one "
                    "update, and nothing else may write to them",
                    s.who(rank)));
}

/// The weights of each replica at the beginning of a step.
std::vector<Numbers> weights_before(const TrainingCase& training, const std::vector<Parcel>& ranks,
                                    size_t step) {
  const std::string entry = step == 0 ? "start" : fmt::format("weights.{}", step - 1);
  std::vector<Numbers> replicas(static_cast<size_t>(training.replicas));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Numbers part = to_doubles(ranks[rank].tensor(entry));
    Numbers& whole = replicas[rank / static_cast<size_t>(training.stages())];
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return replicas;
}

StepParts of_replica(const StepParts& all, size_t replica) {
  StepParts own{.weights = all.weights};
  for (const Microbatch& microbatch : all.microbatches)
    if (microbatch.replica == replica) {
      own.microbatches.push_back(microbatch);
      own.targets += microbatch.targets;
    }
  return own;
}

void expect_same_replicas(const TrainingCase& training, const std::vector<Parcel>& ranks,
                          size_t step) {
  const auto stages = static_cast<size_t>(training.stages());
  for (size_t stage = 0; stage < stages; ++stage) {
    std::vector<Numbers> copies;
    for (size_t rank = stage; rank < ranks.size(); rank += stages)
      copies.push_back(to_doubles(ranks[rank].tensor(fmt::format("weights.{}", step))));
    expect_same_bits(copies, fmt::format("after step {} the weights", step + 1));
  }
}

}  // namespace

void judge_steps(const TrainingCase& training, const std::vector<Parcel>& ranks,
                 const StepContract& contract) {
  TrainingOracle oracle(training);
  std::vector<double> earlier_targets;
  std::vector<Numbers> earlier_losses(ranks.size());
  for (size_t step = 0; step < training.steps.size(); ++step) {
    const std::vector<Numbers> weights = weights_before(training, ranks, step);
    const StepParts all = oracle.parts(step, weights);
    std::vector<StepParts> owns;
    for (size_t r = 0; r < weights.size(); ++r) owns.push_back(of_replica(all, r));
    std::vector<Step> steps;
    std::vector<Numbers> gradients;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const size_t replica = rank / static_cast<size_t>(training.stages());
      const int stage = static_cast<int>(rank) % training.stages();
      Numbers before;
      if (step == 0)
        before =
            Numbers(oracle.of_stage(weights[replica], stage).size(), double{training.leftover});
      else
        before = to_doubles(ranks[rank].tensor(fmt::format("gradients.{}", step - 1)));
      steps.push_back({training, contract, oracle, step, all, owns[replica], replica, stage,
                       ranks[rank], std::move(before), earlier_targets, earlier_losses[rank]});
      expect_one_update(steps.back(), rank);
      gradients.push_back(to_doubles(ranks[rank].tensor(fmt::format("gradients.{}", step))));
    }
    for (Step& s : steps)
      for (const Step& other : steps)
        if (other.replica == s.replica)
          s.before_of_stages.insert(s.before_of_stages.end(), other.before.begin(),
                                    other.before.end());
    const auto in_step = [&](const std::string& text) {
      return fmt::format("{}{}in step {} of {}", text, text.empty() ? "" : "\n", step + 1,
                         training.steps.size());
    };
    expect_on_every_rank(
        gradients, [&](size_t rank) { return expected_gradients(steps[rank]); },
        [&](size_t rank) { return in_step(totals_in_words(steps[rank])); },
        training.stages() > 1 ? Blame::kLastRank : Blame::kFirstRank);
    expect_on_every_rank(
        numbers_of(ranks, fmt::format("loss.{}", step)),
        [&](size_t rank) { return expected_loss(steps[rank]); },
        [&](size_t rank) { return in_step(totals_in_words(steps[rank])); });
    if (contract.updates_only)
      for (size_t rank = 0; rank < ranks.size(); ++rank) expect_updates_only(steps[rank], rank);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].number(fmt::format("in_flight.{}", step)) > 0)
        stop(
            fmt::format("{}the stage still holds activations after the step: every forward pass "
                        "needs its backward pass, even for a microbatch without targets",
                        steps[rank].who(rank)));
    if (contract.gradient == StepContract::Gradient::kOfAllReplicas)
      expect_same_replicas(training, ranks, step);
    if (contract.bits_of_one_process && training.replicas == 1 && training.max_norm == 0) {
      const TrainingOracle::Exact exact = oracle.one_process(step, weights[0]);
      Numbers whole;
      for (const Numbers& part : gradients) whole.insert(whole.end(), part.begin(), part.end());
      confirm_bits(whole, exact.gradient, "the gradients");
      if (!contract.loss_in_parts)
        confirm_bits({ranks.back().number(fmt::format("loss.{}", step))}, {exact.loss}, "the loss");
    }
    earlier_targets.push_back(all.targets);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      earlier_losses[rank].push_back(ranks[rank].number(fmt::format("loss.{}", step)));
  }
}

void judge_training(
    const CaseLimits& limits, uint64_t seed, const std::string& scenario, const JobOptions& options,
    const std::function<void(const TrainingCase&, const std::vector<Parcel>&)>& judge) {
  judge_cases(draw_cases(limits, 1000 * scenario_seed() + seed), scenario, options, judge);
}

void judge_cases(
    const std::vector<TrainingCase>& cases, const std::string& scenario, const JobOptions& options,
    const std::function<void(const TrainingCase&, const std::vector<Parcel>&)>& judge) {
  std::vector<Call> calls;
  for (const TrainingCase& training : cases) {
    Call call{.scenario = scenario, .inputs = {}, .name = training.name};
    for (int rank = 0; rank < training.ranks(); ++rank) call.inputs.push_back(training.input(rank));
    calls.push_back(call);
  }
  judge_calls(calls, options,
              [&](size_t k, const std::vector<Parcel>& ranks) { judge(cases[k], ranks); });
}

}  // namespace lab::grading
