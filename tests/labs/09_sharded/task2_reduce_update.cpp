// Task 2: the sum of a part's gradients, by shards; the update of a shard, and the new weights.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/grading/training_case.h"
#include "tests/labs/09_sharded/promises.h"

namespace lab09::task2 {
namespace {

using lab::grading::Mistake;
using lab::grading::Numbers;
using lab::grading::Parcel;

int64_t shard_of(int64_t size, int64_t ranks) { return (size + ranks - 1) / ranks; }

struct Case {
  int stage;
  size_t ranks;
  int times;
};

/// The sum over some ranks of their gradients, from element `first` on.
Numbers sum_of(const std::vector<Parcel>& inputs, const std::string& entry, int64_t first,
               int64_t count, double factor) {
  Numbers sum(static_cast<size_t>(count), 0.0);
  for (const Parcel& input : inputs) {
    const Numbers gradient = lab::grading::to_doubles(input.tensor(entry));
    for (size_t i = 0; i < sum.size(); ++i)
      if (const size_t at = i + static_cast<size_t>(first); at < gradient.size())
        sum[i] += factor * gradient[at];
  }
  return sum;
}

void judge(const Case& c, const std::vector<Parcel>& inputs, const std::vector<Parcel>& ranks) {
  const bool adds = c.stage > 1;  // in stage 1 the sum replaces what was there
  const int times = adds ? c.times : 1;
  for (size_t p = std::size(kSizes); p-- > 0;) {
    const std::string entry = fmt::format("gradient.{}", p);
    const int64_t count = shard_of(kSizes[p], static_cast<int64_t>(c.ranks));
    lab::grading::expect_on_every_rank(
        lab::grading::tensors_of(ranks, fmt::format("own.{}", p)),
        [&](size_t rank) {
          Numbers earlier(static_cast<size_t>(count), 0.0);
          if (adds)
            earlier = lab::grading::to_doubles(inputs[rank].tensor(fmt::format("earlier.{}", p)));
          const auto plus_earlier = [earlier](Numbers sum) {
            for (size_t i = 0; i < sum.size(); ++i) sum[i] += earlier[i];
            return sum;
          };
          const auto sum = [&inputs, entry, count](size_t r, double factor) {
            return sum_of(inputs, entry, static_cast<int64_t>(r) * count, count, factor);
          };
          const auto from = [=](size_t r, double factor) { return plus_earlier(sum(r, factor)); };
          const auto own = static_cast<int64_t>(rank) * count;
          return lab::grading::Expected{
              .what = fmt::format("own_gradient of part {} in stage {}", p, c.stage),
              .values = from(rank, times),
              .tolerance = {1e-5},
              .name = {},
              .mistakes = [=, &inputs] {
                return std::vector<Mistake>{
                    {plus_earlier(sum_of({inputs[rank]}, entry, own, count, times)),
                     "still this rank's own gradient: was nothing summed, or did the sum go into "
                     "another tensor?"},
                    {sum(rank, 1),
                     "the sum of the last call alone: in stages 2 and 3, add it to what earlier "
                     "microbatches have left"},
                    {sum(rank, times),
                     "what own_gradient held before the first call is gone: in stages 2 and 3, add "
                     "the sum to it"},
                    {from((rank + 1) % c.ranks, times), "another rank's shard"},
                    {from(0, times), "the shard of rank 0 on all ranks"},
                    {from(rank, times / static_cast<double>(c.ranks)),
                     "divided by the number of ranks: each rank's gradient is already a part of "
                     "the mean over all targets"},
                    {from(rank, 2.0 * times),
                     adds ? "counted twice: add the sum to own_gradient once"
                          : "counted twice: in stage 1, own_gradient is a view "
                            "of gradient, and needs no addition"},
                    {from(rank, 0), "nothing arrives in own_gradient"}};
              }};
        },
        [&](size_t) { return fmt::format("part {}", p); });
  }
}

TEST(Task2, ReduceEveryPart) {
  const uint64_t seed = 1000 * lab::grading::scenario_seed();
  for (const size_t n : {1, 3, 2, 5, 9, 4}) {  // with 9, a shard of the smallest part is padding
    std::vector<Case> cases{{2, n, 1}, {1, n, 1}, {3, n, 3}, {1, n, 2}, {2, n, 2}};
    std::vector<lab::grading::Call> calls;
    for (const Case& c : cases) {
      lab::grading::Call call{
          .scenario = "reduce",
          .inputs = std::vector<Parcel>(n),
          .name = fmt::format("stage {}, ranks: {}, microbatches: {}", c.stage, n, c.times)};
      for (size_t r = 0; r < n; ++r) {
        call.inputs[r].set("stage", c.stage);
        call.inputs[r].set("times", c.times);
        for (size_t p = 0; p < std::size(kSizes); ++p) {
          const uint64_t own_seed = seed + 100 * r + 10 * p + calls.size();
          call.inputs[r].set(fmt::format("gradient.{}", p),
                             lab::grading::draw_tensor({kSizes[p]}, 1, own_seed));
          call.inputs[r].set(fmt::format("earlier.{}", p), draw_shard(p, r, n, 1, own_seed + 5000));
        }
      }
      calls.push_back(call);
    }
    judge_calls(calls, simulated("2", 20 + n), [&](size_t k, const std::vector<Parcel>& ranks) {
      judge(cases[k], calls[k].inputs, ranks);
    });
  }
}

TEST(Task2, StepsOfStage1) { expect_steps(1, 3, 21, simulated("2", 22)); }
TEST(Task2, StepsOfStage2) { expect_steps(2, 2, 23, simulated("2", 24)); }
TEST(Task2, StepsOfStage3) { expect_steps(3, 9, 25, simulated("2", 26)); }
// On the last rank, some shards are nothing but padding.
TEST(Task2, NineRanksOfStage1) { expect_steps(1, 9, 20, simulated("2", 19), kSmallCases); }
TEST(Task2, OneRank) { expect_steps(1, 1, 27, simulated("2", 28)); }
TEST(Task2, OverGloo) { expect_steps(1, 2, 29, over_gloo("2"), kCasesOverGloo); }

}  // namespace
}  // namespace lab09::task2
