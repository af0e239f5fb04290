#include "tests/labs/09_sharded/promises.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "common/tensor/memory_account.h"
#include "tests/grading/training_judge.h"
#include "tests/labs/09_sharded/traffic.h"

namespace lab09 {
namespace {

using lab::MemoryKind;
using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::StepContract;
using lab::grading::stop;
using lab::grading::TrainingCase;

constexpr double kFloat = sizeof(float);
constexpr double kMoments = 2;  // of Adam, per weight

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
        sizes.stage == 3 ? "gather at most the part that is used and the next one"
                         : "keep a single copy of them");
  check("gradients", peak(MemoryKind::kGradients), limits.gradients,
        sizes.stage == 1 ? "keep a single copy of them"
                         : "besides the shards, only the part that the backward pass is "
                           "computing needs one");
  check("the optimizer", peak(MemoryKind::kOptimizer), limits.optimizer,
        "only this rank's shards are updated here");
  check("copies", peak(MemoryKind::kScratch) + peak(MemoryKind::kCommunication), limits.scratch,
        "a copy of a shard is allowed, one of a part is not; reduce and gather in place");
  check("all together", peaks[lab::kMemoryKinds], limits.together,
        "each kind is within its limit, but not all of them at the same moment; is something freed "
        "too late?");
  // What is in shards, and what passes gather, must be somewhere.
  const bool passes = !c.steps[step][0].empty();
  const double least = limits.together - limits.scratch;
  if (passes && peaks[lab::kMemoryKinds] < 0.98 * least)
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

/// The weights after the step are those before, updated by the optimizer.
void expect_weights(const TrainingCase& c, const Sizes& sizes, const std::vector<Parcel>& ranks,
                    size_t step) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].number(fmt::format("updates.{}", step)) != 1) continue;  // judged elsewhere
    if (const double rate = ranks[r].number(fmt::format("rate.{}", step));
        std::abs(rate - double{c.rate(step)}) > 1e-8)
      stop(
          fmt::format("update is not given the learning rate of train_step\nrank {}, step {}: got "
                      "{}, expected {}",
                      r, step + 1, rate, c.rate(step)));
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
      if (!std::isfinite(got[i]) && !std::isfinite(updated[i])) continue;  // judged elsewhere
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

int64_t sum_of(const std::vector<lab::TokenBatch>& microbatches,
               const std::function<int64_t(const lab::TokenBatch&)>& count) {
  int64_t sum = 0;
  for (const lab::TokenBatch& batch : microbatches) sum += count(batch);
  return sum;
}

/// The mistake that gives the loss `got` in place of the targets of all ranks.
std::string wrong_total(const TrainingCase& c, size_t step, size_t r, size_t microbatch,
                        int64_t got) {
  const auto all_of = [&](size_t s, const std::function<int64_t(const lab::TokenBatch&)>& count) {
    int64_t sum = 0;
    for (const auto& microbatches : c.steps[s]) sum += sum_of(microbatches, count);
    return sum;
  };
  const auto targets = [](const lab::TokenBatch& batch) { return batch.target_count(); };
  const auto& own = c.steps[step][r];
  const int64_t all = all_of(step, targets);
  if (all == 0) return "no rank has a target, so the loss must be given 0, or 1";
  if (got == 1) return "the loss is given 1, not the targets of all ranks: what it leaves is a sum";
  if (got == sum_of(own, targets))
    return "each rank's loss is divided by its own targets: give it those of all ranks";
  if (got * c.ranks() == all)
    return "the targets of all ranks are divided by the number of ranks: give the loss their sum";
  if (got == c.ranks() * sum_of(own, targets))
    return "the loss is given this rank's targets times the number of ranks: ranks have unequal "
           "numbers, so add them up";
  if (microbatch < own.size() && got == own[microbatch].target_count())
    return "every microbatch is divided by its own targets: give the loss those of the whole step";
  if (got == all_of(step, [](const lab::TokenBatch& b) { return b.batch * (b.length - 1); }))
    return "padding is counted as a target: TokenBatch::target_count() leaves it out";
  if (got == all_of(step, [](const lab::TokenBatch& b) { return b.target_count() + b.batch; }) ||
      got == all_of(step, [](const lab::TokenBatch& b) { return b.batch * b.length; }))
    return "the first token of each row is counted as a target: nothing predicts it";
  int64_t so_far = all;
  for (size_t earlier = step; earlier-- > 0;) {
    so_far += all_of(earlier, targets);
    if (got == all_of(earlier, targets) || got == so_far)
      return "the loss is given targets of an earlier step: is something kept from one step to the "
             "next?";
  }
  return "the loss is not given the number of targets of all microbatches of all ranks";
}

/// What the loss was given: known exactly, so no number needs to be explained by it later.
void expect_totals(const TrainingCase& c, const Parcel& rank, size_t r, size_t step) {
  int64_t all = 0;
  const auto targets = [](const lab::TokenBatch& batch) { return batch.target_count(); };
  for (const auto& microbatches : c.steps[step]) all += sum_of(microbatches, targets);
  const Numbers totals = rank.numbers(fmt::format("totals.{}", step));
  for (size_t k = 0; k < totals.size(); ++k)
    if (const auto total = static_cast<int64_t>(totals[k]); total != all && (all > 0 || total != 1))
      stop(
          fmt::format("{}\nrank {}, step {}: loss was called with total_targets = {}; this rank "
                      "has {} targets, all ranks have {}",
                      wrong_total(c, step, r, k, total), r, step + 1, fmt::join(totals, ", "),
                      sum_of(c.steps[step][r], targets), all));
}

/// Clipping by clip_gradients has its place. A step that clips without it is judged by its numbers.
void expect_clipping(const TrainingCase& c, const Parcel& rank, size_t r, size_t step) {
  const std::string events = " " + rank.text(fmt::format("events.{}", step)) + " ";
  const size_t clip = events.find(" clip ");
  if (clip == std::string::npos) return;
  const std::string where = fmt::format("\nrank {}, step {}", r, step + 1);
  if (c.max_norm == 0)
    stop("train_step calls clip_gradients although max_norm is 0, which means: do not clip" +
         where);
  const bool is_early = std::max({events.rfind(" reduce:") + 1, events.rfind(" loss ") + 1}) > clip;
  if (is_early || events.find(" update ") < clip)
    stop(fmt::format(
        "clip_gradients is called {}: clip once, when all gradients are complete and "
        "before the update{}",
        is_early ? "before the gradients of all microbatches are reduced" : "after the update",
        where));
}

void judge(const TrainingCase& c, int stage, const std::vector<Parcel>& ranks) {
  Sizes sizes{.part = {},
              .ranks = static_cast<double>(ranks.size()),
              .stage = stage,
              .tied = c.model.tied_head};
  for (const double size : ranks[0].numbers("part_sizes"))
    sizes.part.push_back(std::ceil(size / sizes.ranks) * sizes.ranks);
  for (size_t step = 0; step < c.steps.size(); ++step) {
    const auto updates = [&](size_t r) { return ranks[r].number(fmt::format("updates.{}", step)); };
    for (size_t r = 0; r < ranks.size(); ++r) {
      expect_totals(c, ranks[r], r, step);
      if (updates(r) == 1) expect_clipping(c, ranks[r], r, step);
    }
    expect_weights(c, sizes, ranks, step);
    for (size_t r = 0; r < ranks.size(); ++r)
      if (updates(r) == 1) expect_traffic(c, sizes, ranks[r], r, step);
  }
  judge_steps(c, ranks,
              {.gradient = StepContract::Gradient::kOfAllReplicas,
               .loss = StepContract::Loss::kPartOnLastStage,
               .updates_only = false,
               .loss_gets_all_targets = true,
               .how_to_average = "the loss is given the targets of all ranks, and reduce_gradient "
                                 "sums over the ranks",
               .how_to_clip = "call clip_gradients after the last reduce_gradient and before the "
                              "update"});
  for (size_t step = 0; step < c.steps.size(); ++step)
    for (size_t r = 0; r < ranks.size(); ++r) {
      expect_numbers_sent(c, ranks[r], r, step);
      expect_memory(c, sizes, ranks[r], r, step);
    }
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

lab::Tensor draw_shard(size_t p, size_t r, size_t ranks, double scale, uint64_t seed) {
  const auto shard = (kSizes[p] + static_cast<int64_t>(ranks) - 1) / static_cast<int64_t>(ranks);
  const lab::Tensor numbers = lab::grading::draw_tensor({shard}, scale, seed);
  const int64_t filled = std::clamp<int64_t>(kSizes[p] - static_cast<int64_t>(r) * shard, 0, shard);
  numbers.rows(filled, shard).fill(0.0F);
  return numbers;
}

lab::grading::JobOptions over_gloo(const std::string& task) {
  lab::grading::JobOptions options;
  options.given = all_given_but(task);
  return options;
}

lab::grading::JobOptions simulated(const std::string& task, uint64_t seed) {
  lab::grading::JobOptions options = lab::grading::late_messages(seed, all_given_but(task));
  options.explain = [](size_t, const std::vector<Parcel>&, const std::string& diagnosis) {
    return diagnosis.find("returned, but") != std::string::npos
               ? diagnosis
               : "ranks do not send the same messages: every rank takes part in every one, in the "
                 "same order, even if it has no targets, no gradient or only padding\n" +
                     diagnosis;
  };
  return options;
}

void expect_steps(int stage, int ranks, uint64_t seed, const lab::grading::JobOptions& options,
                  size_t count) {
  std::vector<TrainingCase> cases =
      lab::grading::draw_cases({.replicas = ranks}, 1000 * lab::grading::scenario_seed() + seed);
  TrainingCase& adam = cases[3];
  adam.name += ", and a step without any microbatch";
  adam.steps[1].assign(adam.steps[1].size(), {});
  std::swap(cases[0], cases[1]);  // where all have equally many targets, mistakes look alike
  if (cases.size() > count) cases.resize(count);
  for (TrainingCase& c : cases) c.leftover = lab::grading::overflowed(c.leftover);
  std::vector<lab::grading::Call> calls;
  for (const TrainingCase& c : cases) {
    lab::grading::Call call{.scenario = "train_step", .inputs = {}, .name = c.name};
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
