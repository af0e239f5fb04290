// ProcessGroup over NCCL where the ranks do not fit together: everything ends, and says why.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/tensor/tensor.h"
#include "tests/gpu/nccl_test.h"
#include "tests/unit/error_of.h"

namespace lab::test {
namespace {

using namespace std::chrono_literals;

/// Two ranks whose operations have a short deadline.
RankErrors run_hasty(const RankBody& body, std::chrono::milliseconds timeout) {
  return run_ranks({.ranks = 2, .timeout = timeout}, body);
}

TEST_F(NcclPair, SendWaitsForItsReceiver) {
  const RankErrors errors = run_hasty(
      [&](GpuRank& self) {
        const int other = 1 - self.world.rank();
        // The connections exist: it is the message that waits.
        for (const int first : {0, 1}) {
          if (self.world.rank() == first) self.world.send(numbers(0, 1), other);
          if (self.world.rank() != first) self.world.recv(Tensor::empty({1}, Device::kCuda), other);
        }
        self.world.send(numbers(0, 1), other);  // both send first
        self.world.recv(Tensor::empty({1}, Device::kCuda), other);
      },
      3s);
  for (const std::string& error : errors)
    EXPECT_TRUE(contains(error, "send(to") && contains(error, "no answer within 3 s")) << error;
}

TEST_F(NcclPair, MessagesInAnotherOrderAreAnError) {
  const RankErrors errors = run_hasty(
      [&](GpuRank& self) {
        std::vector<Work> works;
        for (const int tag : {1, 2}) {
          if (self.world.rank() == 0)
            works.push_back(self.world.isend(numbers(tag, 50), 1, tag));
          else
            works.push_back(self.world.irecv(Tensor::empty({50}, Device::kCuda), 0, 3 - tag));
        }
        wait_all(works);
      },
      10s);
  for (const std::string& error : errors)
    EXPECT_TRUE(contains(error, "received in a different order than sent") &&
                contains(error, "--comm gloo"))
        << error;
}

TEST_F(NcclPair, MessagesOfUnequalSizesAreNotDelivered) {
  for (const int64_t sent : {1, 3}) {
    const RankErrors errors = run_hasty(
        [&](GpuRank& self) {
          if (self.world.rank() == 0)
            self.world.send(numbers(0, sent), 1);
          else
            self.world.recv(Tensor::empty({2}, Device::kCuda), 0);
        },
        1s);
    EXPECT_TRUE(contains(errors[0], "rank 0: send(to 1")) << errors[0];
    EXPECT_TRUE(contains(errors[1], "rank 1: recv(from 0")) << errors[1];
  }
}

TEST_F(NcclPair, CollectivesThatDifferAreAnError) {
  const std::vector<RankBody> others{
      [](GpuRank& self) { self.world.all_reduce(numbers(1, 6)); },
      [](GpuRank& self) { self.world.broadcast(numbers(1, 5), 0); },
      [](GpuRank& self) { self.world.all_reduce(numbers(1, 5), ReduceOp::kMax); }};
  for (const RankBody& other : others) {
    const RankErrors errors = run_hasty(
        [&](GpuRank& self) {
          if (self.world.rank() == 0)
            self.world.all_reduce(numbers(0, 5));
          else
            other(self);
        },
        10s);
    for (const std::string& error : errors)
      EXPECT_TRUE(contains(error, "entered different collectives")) << error;
  }
}

TEST_F(NcclPair, AnAbsentRankEndsAtTheDeadline) {
  const RankErrors errors = run_ranks({.ranks = 2}, [&](GpuRank& self) {
    if (self.world.rank() == 1) return;
    const Tensor tensor = numbers(0, 5);
    const auto all_reduce = [&] {
      self.gpus.run({.kind = OpKind::kAllReduce,
                     .input = {tensor.data(), 5},
                     .output = {tensor.data(), 5},
                     .call = {.tag = 1, .timeout = 300ms}});
    };
    EXPECT_EQ(error_of(all_reduce), "no answer within 0.3 s");
    // The connections are finished, and say so.
    for (const std::string& later :
         {error_of(all_reduce), error_of([&] { self.world.send(tensor, 1); }), error_of([&] {
            static_cast<void>(self.gpus.connect({0, 1}, "pair", 300ms));
          })})
      EXPECT_TRUE(contains(later, "closed earlier: no answer within 0.3 s")) << later;
  });
  EXPECT_EQ(errors, RankErrors(2));
}

}  // namespace
}  // namespace lab::test
