// The rank harness with ranks that talk: over Gloo and simulated, right and wrong.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/grading/rank_harness.h"
#include "tests/grading/rank_main.h"

namespace lab::grading::rank_group_test {
namespace {

class RankGroupTest : public testing::TestWithParam<Network> {
 protected:
  static std::vector<RankResult> run(const std::string& scenario, int ranks = 2) {
    RankJob job;
    job.program = HARNESS_CHILD;
    job.scenario = scenario;
    for (int rank = 0; rank < ranks; ++rank) {
      Parcel input;
      input.set("mine", Tensor::from({static_cast<float>(rank), 1.0F}, {2}));
      job.inputs.push_back(input);
    }
    job.deadline_s = 20;
    job.network = GetParam();
    return run_ranks(job);
  }

  /// The failure that a verdict would tell of.
  static RankResult failure_of(const std::string& scenario) {
    const std::vector<RankResult> results = run(scenario);
    const RankResult* failure = first_failure(results);
    EXPECT_NE(failure, nullptr) << "all ranks returned";
    if (failure == nullptr) return {};
    EXPECT_LT(failure->ended_after_s, 5.0) << "ended by the deadline";
    return *failure;
  }
};

INSTANTIATE_TEST_SUITE_P(Networks, RankGroupTest,
                         testing::Values(Network::kGloo, Network::kSimulated),
                         [](const auto& network) {
                           return network.param == Network::kGloo ? "Gloo" : "Simulated";
                         });

TEST_P(RankGroupTest, RanksTalk) {
  constexpr int kRanks = 6;
  const std::vector<RankResult> results = run("add_up", kRanks);
  for (const RankResult& result : results) {
    ASSERT_EQ(result.outcome, Outcome::kReturned) << result.message << result.output;
    EXPECT_EQ(result.result.tensor("sum").values()[0], 15.0F);
    EXPECT_EQ(result.result.tensor("sum").values()[1], 6.0F);
    EXPECT_EQ(result.result.tensor("from_left").values()[0],
              static_cast<float>((result.rank + kRanks - 1) % kRanks));
  }
}

TEST_P(RankGroupTest, ADeadlockIsExplained) {
  const RankResult failure = failure_of("both_send_first");
  EXPECT_EQ(failure.outcome, Outcome::kDiagnosed);
  EXPECT_NE(failure.message.find("rank 0"), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find("send(to 1, tag 0, 16 bytes)"), std::string::npos)
      << failure.message;
  EXPECT_NE(failure.message.find("send(to 0, tag 0, 16 bytes)"), std::string::npos)
      << failure.message;
}

TEST_P(RankGroupTest, ARankThatReturnsEarlyIsNamed) {
  const RankResult failure = failure_of("forget_the_others");
  EXPECT_EQ(failure.outcome, Outcome::kDiagnosed);
  EXPECT_NE(failure.message.find("rank 1"), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find("all_reduce #1"), std::string::npos) << failure.message;
}

TEST_P(RankGroupTest, TheErrorOfOneRankIsToldNotItsConsequences) {
  const RankResult failure = failure_of("throw_while_others_wait");
  EXPECT_EQ(failure.rank, 1);
  EXPECT_NE(failure.message.find("rank 1 has had enough"), std::string::npos) << failure.message;
}

TEST_P(RankGroupTest, ATodoOnOneRankIsTold) {
  const RankResult failure = failure_of("todo_while_others_wait");
  EXPECT_EQ(failure.outcome, Outcome::kNotImplemented);
}

TEST(RankGroupOverGloo, AKilledRankIsNamed) {
  const std::vector<RankResult> results = run_ranks({.program = HARNESS_CHILD,
                                                     .scenario = "die_in_all_reduce",
                                                     .inputs = std::vector<Parcel>(3),
                                                     .deadline_s = 20,
                                                     .network = Network::kGloo});
  const RankResult* failure = first_failure(results);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->outcome, Outcome::kCrash) << failure->message;
}

TEST(RankGroupOverGloo, AStoppedRankIsNamed) {
  const std::vector<RankResult> results = run_ranks({.program = HARNESS_CHILD,
                                                     .scenario = "stop_before_barrier",
                                                     .inputs = std::vector<Parcel>(2),
                                                     .deadline_s = 20,
                                                     .network = Network::kGloo});
  const RankResult* failure = first_failure(results);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->outcome, Outcome::kDiagnosed) << failure->message;
  EXPECT_NE(failure->message.find("rank 1 is stopped"), std::string::npos) << failure->message;
}

}  // namespace
}  // namespace lab::grading::rank_group_test
