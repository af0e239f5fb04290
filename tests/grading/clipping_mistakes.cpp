#include "tests/grading/clipping_mistakes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

namespace lab::grading {
namespace {

using Microbatch = MicrobatchPart;

/// The gradients of each stage scaled as if the norm were `length(part)`.
Numbers clipped_by(const TrainingStep& s, const Numbers& whole,
                   const std::function<double(const Numbers& part)>& length) {
  Numbers part = s.part(whole);
  const double limit = s.training.max_norm;
  const double l = length(part);
  if (l > limit)
    for (double& g : part) g *= limit / l;
  return part;
}

double sum_of_stage_norms(const TrainingStep& s, const Numbers& whole) {
  double sum = 0;
  for (int stage = 0; stage < s.training.stages(); ++stage)
    sum += norm(s.oracle.of_stage(whole, stage));
  return sum;
}

/// Each tensor clipped separately.
Numbers clipped_tensors(const TrainingStep& s, const Numbers& whole) {
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
Numbers clipped_in_the_loop(const TrainingStep& s) {
  Numbers sum(s.all.weights, 0.0);
  for (const Microbatch& b : s.parts().microbatches) {
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += b.gradient[i] / std::max(s.parts().targets, 1.0);
    sum = clipped(sum, s.training.max_norm);
  }
  return sum;
}

}  // namespace

void add_clipping_mistakes(const TrainingStep& s, const Numbers& whole,
                           std::vector<Mistake>& mistakes) {
  const double limit = s.training.max_norm;
  const std::string what = s.contract.gradients + ": ";
  if (limit <= 0) return;
  const auto add = [&](Numbers part, const std::string& message) {
    mistakes.push_back({std::move(part), what + message});
  };
  add(s.part(whole), "not clipped: " + s.contract.how_to_clip +
                         "; it scales the model's own gradients, not a copy of them");
  const double length = norm(whole);
  Numbers unit = whole;
  for (double& g : unit) g *= limit / length;
  add(s.part(unit),
      "scaled to max_gradient_norm although they are shorter: clipping never makes "
      "gradients longer");
  add(s.part(clipped(whole, std::floor(limit))),
      "clipped to another limit: max_gradient_norm is not a whole number, and must not be rounded");
  add(clipped_by(s, whole, [](const Numbers& part) { return norm(part); }),
      "clipped by the norm of this stage's own gradients: use the norm of the whole model's "
      "gradients");
  add(clipped_by(s, whole,
                 [root = std::sqrt(static_cast<double>(s.training.stages()))](const Numbers& part) {
                   return root * norm(part);
                 }),
      "each stage is clipped separately, to max_gradient_norm divided by the root of the number "
      "of stages: clip by the norm of the whole model's gradients");
  const double sum_of_norms = sum_of_stage_norms(s, whole);
  add(clipped_by(s, whole, [&](const Numbers&) { return sum_of_norms; }),
      "clipped by the sum of the stages' norms: a norm is the root of the sum of all squares");
  const double root = std::sqrt(static_cast<double>(s.training.replicas));
  add(clipped_by(s, whole, [&](const Numbers&) { return root * length; }),
      "the norm is too large: every weight is counted once for each replica; clip over ranks "
      "that together hold the model once");
  add(clipped_by(s, whole, [&](const Numbers& part) { return root * norm(part); }),
      "clipped by a norm over the replicas of this stage: these all hold the same weights, and "
      "none of the other stages; clip over ranks that together hold the model once");
  if (s.training.ranks() == 1) {
    add(clipped_tensors(s, whole),
        "every tensor is clipped by its own norm: use the norm of all gradients together");
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
      "clipped by the norm of this rank's own gradients before averaging: use the norm of the "
      "average, which is the same on every rank");
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
      "clipped before they were averaged: the norm of the average is the one that counts, and "
      "each rank has scaled its gradients by a different factor");
}

}  // namespace lab::grading
