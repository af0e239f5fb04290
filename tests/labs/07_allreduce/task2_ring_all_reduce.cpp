// Task 2: the two halves of the ring, and both.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "labs/07_allreduce/allreduce.h"
#include "tests/labs/07_allreduce/reduction.h"

namespace lab07::task2 {
namespace {

const std::vector<std::string> kFunctions = {"ring_reduce_scatter", "ring_all_gather",
                                             "ring_all_reduce"};

std::vector<Case> each(int64_t elements, bool telling = false,
                       lab::ReduceOp op = lab::ReduceOp::kSum) {
  std::vector<Case> cases;
  for (const std::string& function : kFunctions)
    cases.push_back({.function = function, .elements = elements, .op = op, .telling = telling});
  return cases;
}

TEST(Task2, ThreeRanksEqualChunks) {
  expect_cases(each(12, true), 3, {.network = lab::grading::Network::kSimulated});
}

TEST(Task2, AnyRanksAnyElementsAnyOrder) {
  expect_any_cases(kFunctions, lab::grading::scenario_seed() + 200);
  // 13 / 17 * 153 is less than 117 in double, as are other c / n * E.
  expect_cases(each(153), 17, {.network = lab::grading::Network::kSimulated});
}

TEST(Task2, ScratchAndTime) {
  expect_cases(each(120'000), 6, timed());
  expect_cases(each(301), 3, timed());
  expect_cases(each(302, false, lab::ReduceOp::kMin), 3, timed());
  expect_cases(each(5), 8, timed());
}

TEST(Task2, LongChunks) {
  const lab::grading::JobOptions simulated{.network = lab::grading::Network::kSimulated};
  expect_cases(each(3 * (2 * kSegment + 2) + 1), 3, simulated);
  expect_cases(each(2 * kSegment + 5, false, lab::ReduceOp::kMin), 2, simulated);
  expect_cases(each(2 * kSegment), 2, simulated);  // just not cut
  expect_cases(each(3 * kSegment), 3, simulated);
  expect_cases(each(2 * kSegment + 1), 2, simulated);  // only one of the chunks may be cut
}

// From here on, the number of a segment times that of elements exceeds 32 bits.
TEST(Task2, LargeTensors) {
  constexpr double kElements = (1 << 24) + 1;
  lab::grading::Call call{.scenario = "large", .inputs = std::vector<lab::grading::Parcel>(2)};
  for (lab::grading::Parcel& input : call.inputs) input.set("elements", kElements);
  const lab::grading::JobOptions simulated{.network = lab::grading::Network::kSimulated};
  for (const lab::grading::Parcel& rank : run_call(call, simulated)) {
    const double right = rank.number("right");
    if (right == kElements) continue;
    lab::grading::stop(fmt::format(
        "ring_all_reduce of {:.0f} elements on 2 ranks: only the first {:.0f} are right{}",
        kElements, right,
        right < kElements / 2
            ? ""
            : ". Does a product of lengths exceed 32 bits, or a length 2^24, beyond which a "
              "float skips integers?"));
  }
}

TEST(Task2, SizesThatDifferAndADeadRankAreExplained) {
  expect_explained_ends({"ring_all_reduce"}, 4, {1, 4, 7, 12});
}

TEST(Task2, ErrorsLeaveTheFunction) { expect_errors_to_leave({"ring_all_reduce", 12}, 3); }

TEST(Task2, OverGloo) {
  std::vector<Case> cases = each(50'001);
  cases.push_back({.function = "ring_all_reduce", .elements = 2});
  expect_cases(cases, 3, {});
}

}  // namespace
}  // namespace lab07::task2
