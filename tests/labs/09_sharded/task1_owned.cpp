// Task 1: equal shards of a padded part.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "common/format.h"
#include "tests/grading/verdict.h"

namespace lab09::task1 {
namespace {

using lab::grading::Numbers;
using lab::grading::Parcel;
using lab::grading::stop;

struct Case {
  int64_t size;
  int64_t ranks;
};

std::vector<Case> some_cases() {
  std::vector<Case> cases{{12, 3},  {12, 1},  {12, 5},
                          {1, 6},   {0, 4},   {64, 64},
                          {63, 64}, {65, 64}, {(int64_t{1} << 33) + 1, 6}};
  std::mt19937_64 random(100 + lab::grading::scenario_seed());
  for (int k = 0; k < 40; ++k)
    cases.push_back({.size = static_cast<int64_t>(random() % (k % 2 == 0 ? 40 : 2'000'000)),
                     .ranks = 1 + static_cast<int64_t>(random() % 12)});
  return cases;
}

void judge(const Case& c, const double* numbers) {
  const std::string where =
      fmt::format("\n{}, {}", lab::counted(c.size, "element"), lab::counted(c.ranks, "rank"));
  const auto all = static_cast<int64_t>(numbers[0]);
  if (all % c.ranks != 0)
    stop(fmt::format("padded returns {}, which is no multiple of the number of ranks{}", all,
                     where));
  if (all < c.size)
    stop(fmt::format("padded returns {}, which is less than the part{}", all, where));
  if (all >= c.size + c.ranks)
    stop(fmt::format("padded returns {}, which is not the smallest multiple{}", all, where));
  int64_t next = 0;
  for (int64_t rank = 0; rank < c.ranks; ++rank) {
    const auto first = static_cast<int64_t>(numbers[1 + 2 * rank]);
    const auto last = static_cast<int64_t>(numbers[2 + 2 * rank]);
    const std::string what =
        fmt::format("owned gives rank {} the elements [{}, {})", rank, first, last);
    if (first != next)
      stop(fmt::format("{}: it should begin at {}, where the shard before it ends{}", what, next,
                       where));
    if (last - first != all / c.ranks)
      stop(fmt::format("{}: all shards have {} elements, even those that contain padding{}", what,
                       all / c.ranks, where));
    next = last;
  }
}

TEST(Task1, EqualShards) {
  const std::vector<Case> cases = some_cases();
  Parcel input;
  Numbers sizes;
  Numbers ranks;
  for (const Case& c : cases) {
    sizes.push_back(static_cast<double>(c.size));
    ranks.push_back(static_cast<double>(c.ranks));
  }
  input.set("sizes", sizes);
  input.set("ranks", ranks);
  lab::grading::JobOptions options;
  options.network = lab::grading::Network::kNone;
  judge_calls({{.scenario = "ranges", .inputs = {input}, .name = "shards"}}, options,
              [&](size_t, const std::vector<Parcel>& results) {
                const Numbers numbers = results[0].numbers("ranges");
                size_t next = 0;
                for (const Case& c : cases) {
                  judge(c, numbers.data() + next);
                  next += 1 + 2 * static_cast<size_t>(c.ranks);
                }
              });
}

}  // namespace
}  // namespace lab09::task1
