#include "tests/labs/09_sharded/promises.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/tensor/memory_account.h"
#include "tests/grading/training_judge.h"

namespace lab09 {
namespace {

using lab::MemoryKind;
using lab::OpKind;
using lab::grading::Numbers;
using lab::grading::Operation;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::stop;
using lab::grading::TrainingCase;

constexpr double kFloat = sizeof(float);
constexpr uint64_t kNumberOrTwo = 16;  // bytes
constexpr double kMoments = 2;         // of Adam, per weight

/// What each part of the model takes.
struct Sizes {
  std::vector<double> part;  // padded elements
  double ranks = 1;
  int stage = 1;
  bool tied = false;

  double shard(size_t p) const { return part[p] / ranks; }
  double all() const { return std::accumulate(part.begin(), part.end(), 0.0); }
  double largest_shard() const { return std::ranges::max(part) / ranks; }
  /// The parts that a backward pass uses, each step of the computation alone.
  std::vector<std::vector<size_t>> backward() const {
    std::vector<std::vector<size_t>> uses{{part.size() - 1}};
    if (tied) uses[0].insert(uses[0].begin(), 0);
    for (size_t p = part.size() - 1; p-- > 0;) uses.push_back({p});
    return uses;
  }
};

/// The most that a step may hold of each kind, in bytes.
struct Limits {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double scratch = 0;  // copies
  double together = 0;
};

Limits limits_of(const Sizes& s, bool adam) {
  const double all = s.all();
  const double own = all / s.ranks;
  Limits limits{.weights = all,
                .gradients = all,
                .optimizer = adam ? kMoments * own : 0,
                .scratch = s.largest_shard() + 256};
  if (s.stage == 1) {
    limits.together = limits.weights + limits.gradients + limits.optimizer;
  } else {
    double most_gradients = 0;  // besides the shards
    double most_weights = 0;    // likewise, in stage 3
    double most_together = 0;
    const std::vector<std::vector<size_t>> uses = s.backward();
    for (size_t u = 0; u < uses.size(); ++u) {
      double used = 0;
      for (size_t p : uses[u]) used += s.part[p];
      const double next = u + 1 < uses.size() ? s.part[uses[u + 1][0]] : 0;
      most_gradients = std::max(most_gradients, used);
      most_weights = std::max(most_weights, used + next);
      most_together = std::max(most_together, used + next + used);
    }
    limits.gradients = own + most_gradients;
    limits.together = all + own + most_gradients + limits.optimizer;
    if (s.stage == 3) {
      limits.weights = own + most_weights;
      limits.together = own + own + most_together + limits.optimizer;
    }
  }
  limits.together += limits.scratch;
  for (double* limit :
       {&limits.weights, &limits.gradients, &limits.optimizer, &limits.scratch, &limits.together})
    *limit *= kFloat;
  return limits;
}

void expect_memory(const TrainingCase& c, const Sizes& sizes, const Parcel& rank, size_t r,
                   size_t step) {
  const Limits limits = limits_of(sizes, c.optimizer == "adam");
  const Numbers peaks = rank.numbers(fmt::format("memory.{}", step));
  const auto peak = [&](MemoryKind kind) { return peaks[static_cast<size_t>(kind)]; };
  const std::string where = fmt::format("\nrank {}, step {}, stage {}", r, step + 1, sizes.stage);
  const auto check = [&](const char* what, double got, double limit, const std::string& why) {
    if (got > 1.02 * limit)
      stop(fmt::format("too much memory for {}: {}{}: {:.0f} bytes at the peak, at most {:.0f}",
                       what, why, where, got, limit));
  };
  check("weights", peak(MemoryKind::kWeights), limits.weights,
        sizes.stage == 3 ? "at most the part that is used and the next one are gathered"
                         : "there is one copy of them");
  check("gradients", peak(MemoryKind::kGradients), limits.gradients,
        sizes.stage == 1 ? "there is one copy of them"
                         : "only the part that the backward pass computes has one beside the "
                           "shards");
  check("the optimizer", peak(MemoryKind::kOptimizer), limits.optimizer,
        "only this rank's shards are updated here");
  check("copies", peak(MemoryKind::kScratch) + peak(MemoryKind::kCommunication), limits.scratch,
        "a copy of a shard is allowed, one of a part is not; reduce and gather in place");
  check("all together", peaks[lab::kMemoryKinds], limits.together, "see the handout, 2.2");
  // What is in shards, and what is gathered, must be somewhere.
  const double least = limits.together - limits.scratch;
  if (peaks[lab::kMemoryKinds] < 0.98 * least)
    stop(
        fmt::format("a step holds less than it needs, {:.0f} bytes at the peak, expected {:.0f}: "
                    "keep numbers in tensors, where they are counted, and gather ahead{}",
                    peaks[lab::kMemoryKinds], least, where));
  const double before =
      step == 0 ? 0 : rank.numbers(fmt::format("memory.{}", step - 1))[lab::kMemoryKinds + 1];
  if (const double after = peaks[lab::kMemoryKinds + 1]; step > 0 && after != before)
    stop(
        fmt::format("a step keeps memory that it has not released: {:.0f} bytes after it, {:.0f} "
                    "after the one before{}",
                    after, before, where));
}

void expect_traffic(const TrainingCase& c, const Sizes& sizes, const Parcel& rank, size_t r,
                    size_t step) {
  const auto microbatches = static_cast<double>(c.steps[step][r].size());
  double used = 0;  // bytes of the shards that a pass uses
  size_t uses = 0;
  for (const auto& parts : sizes.backward())
    for (size_t p : parts) {
      used += kFloat * sizes.shard(p);
      ++uses;
    }
  const double once = kFloat * sizes.all() / sizes.ranks;
  const auto parts = static_cast<double>(sizes.part.size());
  const bool one = sizes.stage == 1;
  const double reduced = one ? once : microbatches * used;
  const double reductions = one ? parts : microbatches * static_cast<double>(uses);
  const double gathered = sizes.stage == 3 ? 2 * microbatches * used : once;
  const double gathers = sizes.stage == 3 ? 2 * microbatches * static_cast<double>(uses) : parts;

  double bytes[2] = {0, 0};
  double counts[2] = {0, 0};
  size_t small = 0;
  std::string others;
  for (const Operation& operation : operations_of(rank.part(fmt::format("traffic.{}", step)))) {
    if (operation.kind >= OpKind::kForward) continue;
    const bool is_gather = operation.kind == OpKind::kAllGather;
    if (operation.bytes <= kNumberOrTwo && operation.bytes > 0) {
      ++small;
    } else if (is_gather || operation.kind == OpKind::kReduceScatter) {
      bytes[is_gather] += static_cast<double>(operation.bytes);
      ++counts[is_gather];
    } else {
      others = fmt::format("{} of {} bytes", lab::op_name(operation.kind), operation.bytes);
    }
  }
  const std::string where = fmt::format("\nrank {}, step {}, stage {}", r, step + 1, sizes.stage);
  if (!others.empty())
    stop(
        fmt::format("a step sends by reduce_scatter and all_gather only, and single numbers; here "
                    "is {}{}",
                    others, where));
  const auto check = [&](const char* what, bool gather, double right_bytes, double right_count) {
    if (bytes[gather] != right_bytes || counts[gather] != right_count)
      stop(fmt::format(
          "a step {} {} than it should: {} of {:.0f} bytes together, expected {} of "
          "{:.0f}{}",
          what, bytes[gather] + counts[gather] > right_bytes + right_count ? "more" : "less",
          counts[gather], bytes[gather], right_count, right_bytes, where));
  };
  check("reduces", false, reduced, reductions);
  check("gathers", true, gathered, gathers);
  const size_t numbers = c.max_norm > 0 ? 2 : 1;
  if (small > numbers || (small < numbers && sizes.ranks > 1))
    stop(
        fmt::format("a step sends {} messages of a number or two, expected {}: the targets of all "
                    "ranks{}{}",
                    small, numbers, c.max_norm > 0 ? ", and the norm" : "", where));
}

/// The weights after the step are those before, updated by the optimizer.
void expect_weights(const TrainingCase& c, const Sizes& sizes, const std::vector<Parcel>& ranks,
                    size_t step) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].number(fmt::format("updates.{}", step)) != 1) continue;  // judged elsewhere
    const Numbers updated =
        lab::grading::to_doubles(ranks[r].tensor(fmt::format("updated.{}", step)));
    const Numbers got = lab::grading::to_doubles(ranks[r].tensor(fmt::format("weights.{}", step)));
    const std::string before = step == 0 ? "start" : fmt::format("weights.{}", step - 1);
    const Numbers old = lab::grading::to_doubles(ranks[r].tensor(before));
    size_t wrong = 0;
    size_t stale = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double tolerance = 1e-6 * (std::abs(updated[i]) + std::abs(old[i])) + 1e-9;
      if (std::abs(got[i] - updated[i]) <= tolerance) continue;
      ++wrong;
      if (got[i] == old[i]) ++stale;
    }
    if (wrong == 0) continue;
    stop(fmt::format(
        "{}\nrank {}, step {} of {}, stage {}: {} of {} weights are wrong",
        stale == wrong
            ? "some weights are still those of before the step: after the update every rank needs "
              "the shards of all others"
            : "the weights are not those that the optimizer computed",
        r, step + 1, c.steps.size(), sizes.stage, wrong, got.size()));
  }
}

/// This lab's own hypothesis about a step.
std::vector<lab::grading::Weighing> own_targets(const lab::grading::StepParts& all, size_t) {
  return {{"each rank's loss is divided by its own targets: give it those of all ranks",
           [&all](const lab::grading::MicrobatchPart& b) {
             const double own = all.targets_of(b.replica);
             return own > 0 ? 1 / own : 0.0;
           }}};
}

void judge(const TrainingCase& c, int stage, const std::vector<Parcel>& ranks) {
  Sizes sizes{.part = {},
              .ranks = static_cast<double>(ranks.size()),
              .stage = stage,
              .tied = c.model.tied_head};
  for (const double size : ranks[0].numbers("part_sizes"))
    sizes.part.push_back(std::ceil(size / sizes.ranks) * sizes.ranks);
  for (size_t step = 0; step < c.steps.size(); ++step) {
    expect_weights(c, sizes, ranks, step);
    for (size_t r = 0; r < ranks.size(); ++r)
      if (ranks[r].number(fmt::format("updates.{}", step)) > 0)
        expect_traffic(c, sizes, ranks[r], r, step);
  }
  judge_steps(c, ranks,
              {.gradient = StepContract::Gradient::kOfAllReplicas,
               .loss = StepContract::Loss::kPartOnLastStage,
               .updates_only = false,
               .how_to_average = "the loss is given the targets of all ranks, and reduce_gradient "
                                 "sums over the ranks",
               .how_to_clip = "call clip_gradients after the last reduce_gradient and before the "
                              "update",
               .weighings = own_targets});
  for (size_t step = 0; step < c.steps.size(); ++step)
    for (size_t r = 0; r < ranks.size(); ++r) expect_memory(c, sizes, ranks[r], r, step);
}

}  // namespace

namespace {

/// All tasks that steps call, except for one.
std::set<std::string> all_given_but(const std::string& task) {
  std::set<std::string> given{"1", "2", "3", "4", "5", "6"};
  given.erase(task);
  return given;
}

}  // namespace

lab::grading::JobOptions over_gloo(const std::string& task) {
  lab::grading::JobOptions options;
  options.given = all_given_but(task);
  return options;
}

lab::grading::JobOptions simulated(const std::string& task, uint64_t seed) {
  return lab::grading::late_messages(seed, all_given_but(task));
}

void expect_steps(int stage, int ranks, uint64_t seed, const lab::grading::JobOptions& options,
                  size_t count) {
  std::vector<TrainingCase> cases =
      lab::grading::draw_cases({.replicas = ranks}, 1000 * lab::grading::scenario_seed() + seed);
  if (cases.size() > count) cases.resize(count);
  std::vector<lab::grading::Call> calls;
  for (const TrainingCase& c : cases) {
    lab::grading::Call call{.scenario = "steps", .inputs = {}, .name = c.name};
    for (int rank = 0; rank < c.ranks(); ++rank) {
      call.inputs.push_back(c.input(rank));
      call.inputs.back().set("stage", stage);
    }
    calls.push_back(call);
  }
  judge_calls(calls, options, [&](size_t k, const std::vector<Parcel>& results) {
    judge(cases[k], stage, results);
  });
}

}  // namespace lab09
