// Hypotheses about wrong training steps, the same for all labs: another weight of a microbatch,
// another clipping, or something left over.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/grading/compare.h"
#include "tests/grading/training_oracle.h"

namespace lab::grading {

/// A hypothesis about how microbatches are weighed. It explains gradients and losses.
struct Weighing {
  std::string message;
  StepParts::Weight weight;
  bool by_total = false;  // the mistake is the number of targets that loss was given
};

/// What a lab's contract says about a step.
struct StepContract {
  enum class Gradient { kOfAllReplicas, kOwn } gradient = Gradient::kOfAllReplicas;
  enum class Loss {
    kOwnMean,          // every rank, of its own targets
    kMeanOnLastStage,  // of all targets; 0 elsewhere
    kPartOnLastStage,  // the replica's sum divided by all targets; 0 elsewhere
  } loss = Loss::kOwnMean;
  bool updates_only = true;               // nothing but the optimizer changes the weights
  bool loss_of_every_microbatch = false;  // each rank calls it for each of its microbatches, once
  /// The loss must get the targets of all replicas. If it did, no Weighing `by_total` is reported.
  bool loss_gets_all_targets = false;
  bool bits_of_one_process = false;
  bool loss_in_parts = false;  // added up in another order than that of one process: other bits
  std::string gradients = "the gradients that the optimizer got";  // how they are told
  std::string how_to_average = "average the gradients over the ranks before the update";
  std::string how_to_clip =
      "call lab::clip_gradients after the gradients are complete and before the update";
  /// This lab's own hypotheses, told before the general ones: about a rank of `replica`, from the
  /// parts of all replicas.
  std::function<std::vector<Weighing>(const StepParts& all, size_t replica)> weighings = {};
};

/// One step of one rank, with all that is known about it.
struct TrainingStep {
  const TrainingCase& training;
  const StepContract& contract;
  TrainingOracle& oracle;
  size_t step = 0;
  const StepParts& all;  // of all replicas
  const StepParts& own;  // of this rank's replica
  size_t replica = 0;
  int stage = 0;
  const Parcel& result;
  std::function<double(const StepParts&)> rounding;  // TrainingOracle::rounding
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

/// What the optimizer would have got from wrong steps.
std::vector<Mistake> gradient_mistakes(const TrainingStep& s);
/// What wrong steps would have returned. `parts`: those that the contract averages over; `right`:
/// their weights in the right loss.
std::vector<Mistake> loss_mistakes(const TrainingStep& s, const StepParts& parts,
                                   const StepParts::Weight& right);

}  // namespace lab::grading
