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
  /// The parts that one forward pass, and then its backward pass, use, in their order.
  std::vector<size_t> uses() const {
    std::vector<size_t> forward(part.size());
    std::iota(forward.begin(), forward.end(), size_t{0});
    if (tied) forward.push_back(0);
    std::vector<size_t> both = forward;
    both.insert(both.end(), forward.rbegin(), forward.rend());
    return both;
  }
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

bool is_number_or_two(const Operation& operation) {
  return operation.bytes > 0 && operation.bytes <= kNumberOrTwo;
}

/// What a rank has sent in a step.
std::vector<Operation> messages_of(const Parcel& rank, size_t step) {
  std::vector<Operation> messages = operations_of(rank.part(fmt::format("traffic.{}", step)));
  std::erase_if(messages, [](const Operation& one) { return one.kind >= OpKind::kForward; });
  return messages;
}

/// Stage 3: the parts are gathered in the order of their use, and each is posted before the wait
/// for the one before it begins.
void expect_gathered_ahead(const Sizes& sizes, const std::vector<Operation>& gathers,
                           const std::string& where) {
  const std::vector<size_t> uses = sizes.uses();
  for (size_t k = 0; k < gathers.size(); ++k) {
    const size_t p = uses[k % uses.size()];
    const double expected = kFloat * sizes.shard(p);
    if (static_cast<double>(gathers[k].bytes) != expected)
      stop(
          fmt::format("open_values posts all_gathers in another order than parts are used: first "
                      "use.part, then use.next, because they take place one after the other and "
                      "this part is needed now{}: all_gather {} of the step sends {} bytes, "
                      "expected {} of part {}",
                      where, k + 1, gathers[k].bytes, expected, p));
    const bool is_last = (k + 1) % (uses.size() / 2) == 0;  // of its pass
    if (!is_last && gathers[k].waiting_ns < gathers[k + 1].begin_ns)
      stop(
          fmt::format("open_values waits for part {} before it has posted part {}: post use.next "
                      "first, so that it can follow at once while this rank still waits{}",
                      p, uses[(k + 1) % uses.size()], where));
  }
}

void expect_traffic(const TrainingCase& c, const Sizes& sizes, const Parcel& rank, size_t r,
                    size_t step) {
  const auto microbatches = static_cast<double>(c.steps[step][r].size());
  double used = 0;  // bytes of the shards that a forward and a backward pass use
  for (const size_t p : sizes.uses()) used += kFloat * sizes.shard(p);
  const double uses = microbatches * static_cast<double>(sizes.uses().size());
  const double once = kFloat * sizes.all() / sizes.ranks;
  const auto parts = static_cast<double>(sizes.part.size());
  const bool one = sizes.stage == 1;
  const double reduced = one ? once : microbatches * used / 2;
  const double reductions = one ? parts : uses / 2;
  const double gathered = sizes.stage == 3 ? microbatches * used : once;
  const double gathers = sizes.stage == 3 ? uses : parts;

  double bytes[2] = {0, 0};
  double counts[2] = {0, 0};
  std::vector<Operation> gathered_parts;
  std::string others;
  for (const Operation& operation : messages_of(rank, step)) {
    if (is_number_or_two(operation)) continue;
    const bool is_gather = operation.kind == OpKind::kAllGather;
    if (is_gather || operation.kind == OpKind::kReduceScatter) {
      bytes[is_gather] += static_cast<double>(operation.bytes);
      ++counts[is_gather];
      if (is_gather) gathered_parts.push_back(operation);
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
  if (sizes.stage == 3) expect_gathered_ahead(sizes, gathered_parts, where);
}

/// When all numbers are right: does a step send more of them than it needs?
void expect_numbers_sent(const TrainingCase& c, const Parcel& rank, size_t r, size_t step) {
  const auto sent =
      static_cast<size_t>(std::ranges::count_if(messages_of(rank, step), is_number_or_two));
  const size_t needed = c.max_norm > 0 ? 2 : 1;
  if (sent > needed || (sent < needed && c.ranks() > 1))
    stop(fmt::format(
        "a step sends {} messages of a number or two, expected {}: the targets of all "
        "ranks{}\nrank {}, step {}",
        sent, needed,
        c.max_norm > 0 ? ", and the squares of their gradients"
                       : "; nothing is clipped here, and the loss stays this rank's part",
        r, step + 1));
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
           },
           true}};
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
               .loss_gets_all_targets = true,
               .how_to_average = "the loss is given the targets of all ranks, and reduce_gradient "
                                 "sums over the ranks",
               .how_to_clip = "call clip_gradients after the last reduce_gradient and before the "
                              "update",
               .weighings = own_targets});
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
