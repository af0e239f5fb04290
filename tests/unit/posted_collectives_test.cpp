// Collectives that are posted and waited for later: results, order, ends, and what is said when
// they never come.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/gloo_ranks.h"
#include "tests/unit/recorded_ranks.h"
#include "tests/unit/simulated_job.h"

namespace lab::posted_collectives_test {
namespace {

using namespace std::chrono_literals;

struct Setting {
  std::string transport;
  int ranks;
};

class PostedCollectives : public testing::TestWithParam<Setting> {
 protected:
  int ranks() const { return GetParam().ranks; }
  void run(const Body& body) const {
    const bool gloo = GetParam().transport == "gloo";
    const SimulationOptions late{.ranks = ranks(), .max_delay = 5, .shuffle_ranks = true};
    EXPECT_EQ(gloo ? run_over_gloo(ranks(), body) : simulate(late, body).errors,
              Errors(static_cast<size_t>(ranks())));
  }
  float sum_at(size_t i) const {
    float sum = 0;
    for (int r = 0; r < ranks(); ++r) sum += numbers_of(r, 501)[i];
    return sum;
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, PostedCollectives,
                         testing::Values(Setting{"gloo", 1}, Setting{"gloo", 2}, Setting{"gloo", 3},
                                         Setting{"gloo", 6}, Setting{"simulated", 1},
                                         Setting{"simulated", 2}, Setting{"simulated", 3},
                                         Setting{"simulated", 6}),
                         [](const auto& setting) {
                           return setting.param.transport + std::to_string(setting.param.ranks);
                         });

TEST_P(PostedCollectives, HaveTheResultsOfBlockingOnes) {
  run([&](ProcessGroup& world) {
    for (int64_t count : {0, 1, 5, 400}) {
      const Tensor sum = tensor_of(world.rank(), count);
      const Tensor all = blank(ranks() * count);
      const Tensor parts = tensor_of(world.rank(), ranks() * count);
      const Tensor part = blank(count);
      std::vector<Work> works;
      works.push_back(world.all_reduce_async(sum));
      works.push_back(world.all_gather_async(all, tensor_of(world.rank(), count)));
      works.push_back(world.reduce_scatter_async(part, parts, ReduceOp::kMax));
      wait_all(works);
      wait_all(works);  // does nothing
      const Tensor expected = tensor_of(world.rank(), count);
      world.all_reduce(expected);
      EXPECT_EQ(contents(sum), contents(expected));
      const Tensor gathered = blank(ranks() * count);
      world.all_gather(gathered, tensor_of(world.rank(), count));
      EXPECT_EQ(contents(all), contents(gathered));
      const Tensor scattered = blank(count);
      world.reduce_scatter(scattered, parts, ReduceOp::kMax);
      EXPECT_EQ(contents(part), contents(scattered));
    }
  });
}

TEST_P(PostedCollectives, MayBeWaitedForInAnyOrder) {
  run([&](ProcessGroup& world) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int k = 0; k < 12; ++k) {
      tensors.push_back(tensor_of(world.rank(), 10 + k));
      works.push_back(world.all_reduce_async(tensors.back()));
    }
    for (size_t k : {7, 0, 11, 3}) {
      works[k].wait();
      EXPECT_EQ(tensors[k].data()[9], sum_at(9)) << k;
    }
    wait_all(works);
    for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.data()[9], sum_at(9));
  });
}

// The second sum is one of sums only if the first has happened before it, on every rank.
TEST_P(PostedCollectives, BlockingOnesQueueBehindThem) {
  run([&](ProcessGroup& world) {
    const Tensor tensor = tensor_of(world.rank(), 100);
    Work work = world.all_reduce_async(tensor);
    const Tensor largest = tensor_of(world.rank(), 3);
    world.all_reduce(largest, ReduceOp::kMax);
    EXPECT_EQ(tensor.data()[99], sum_at(99)) << "the queue was not empty";
    ProcessGroup half = world.split(world.rank() % 2, world.rank());
    Work own = half.all_reduce_async(largest, ReduceOp::kMin);
    world.barrier();  // another group's queue
    own.wait();
    work.wait();
    EXPECT_EQ(largest.data()[0], numbers_of(ranks() - 1, 1)[0]);
  });
}

TEST_P(PostedCollectives, GoOnWhileMessagesTravel) {
  run([&](ProcessGroup& world) {
    if (ranks() == 1) return;
    const int right = (world.rank() + 1) % ranks();
    const int left = (world.rank() + ranks() - 1) % ranks();
    const Tensor sum = tensor_of(world.rank(), 300);
    Work work = world.all_reduce_async(sum);
    for (int k = 0; k < 5; ++k) {
      const Tensor received = blank(20);
      Work recv = world.irecv(received, left, k);
      world.send(tensor_of(world.rank(), 20), right, k);
      recv.wait();
      EXPECT_EQ(contents(received), numbers_of(left, 20));
    }
    work.wait();
    EXPECT_EQ(sum.data()[299], sum_at(299));
  });
}

TEST_P(PostedCollectives, AreRecordedFromPostingToTheWait) {
  run([&](ProcessGroup& world) {
    const Tensor tensor = tensor_of(world.rank(), 10);
    Work work = world.all_reduce_async(tensor);
    const RankSnapshot posted = world.recorder().snapshot();
    ASSERT_EQ(posted.pending.size(), 1U);
    EXPECT_EQ(posted.pending[0].state, OpState::kPosted);
    EXPECT_EQ(posted.groups[0].collectives, 1U);
    world.barrier();
    EXPECT_NE(world.recorder().snapshot().pending.at(0).finished_ns, 0);
    work.wait();
    EXPECT_TRUE(world.recorder().snapshot().pending.empty());
    const OpRecord op = world.recorder().history().back();
    EXPECT_EQ(op.kind, OpKind::kAllReduce);
    EXPECT_LE(op.posted_ns, op.started_ns);
    EXPECT_LE(op.started_ns, op.finished_ns);
    EXPECT_LE(op.finished_ns, op.waiting_ns);
    EXPECT_LE(op.waiting_ns, op.done_ns);
    EXPECT_EQ(world.recorder().snapshot().traffic[static_cast<size_t>(op.kind)].bytes, 40U);
  });
}

TEST_P(PostedCollectives, AreFinishedByTheirGroupWhereNobodyWaits) {
  run([&](ProcessGroup& world) {
    const Tensor tensor = tensor_of(world.rank(), 100);
    {
      ProcessGroup all = world.split(0, world.rank());
      Work work = all.all_reduce_async(tensor);
      if (world.rank() == 0) work.wait();
    }
    EXPECT_EQ(tensor.data()[99], sum_at(99));
    const size_t forgotten = world.rank() == 0 ? 0 : 1;
    EXPECT_EQ(world.recorder().snapshot().pending.size(), forgotten);
  });
}

TEST_P(PostedCollectives, RefuseWhatMakesNoSense) {
  run([&](ProcessGroup& world) {
    const Tensor tensor = Tensor::zeros({4, 4});
    EXPECT_THROW((void)world.all_reduce_async(tensor.columns(0, 2)), Error);
    EXPECT_THROW((void)world.all_reduce_async(Tensor()), Error);
    EXPECT_THROW((void)world.all_gather_async(tensor, tensor.rows(0, 3)), Error);
    EXPECT_THROW((void)world.reduce_scatter_async(tensor, tensor.rows(0, 3)), Error);
    world.barrier();  // none of it has reached the others
  });
}

// --- Only in the simulation: time, and jobs that can never go on

TEST(PostedInSimulation, LateResultsShowAMissingWait) {
  int stale = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulationOptions options{.ranks = 2, .seed = seed, .max_delay = 40};
    const auto got = results(options, [](ProcessGroup& world) {
      const Tensor tensor = tensor_of(world.rank(), 1);
      Work work = world.all_reduce_async(tensor);
      Work other = world.isend(blank(1), 1 - world.rank());
      world.recv(blank(1), 1 - world.rank());
      other.wait();
      const Numbers seen = contents(tensor);
      work.wait();
      return seen;
    });
    stale += got[0] == numbers_of(0, 1) ? 1 : 0;
  }
  EXPECT_GE(stale, 5);
  EXPECT_LT(stale, 20);
}

TEST(PostedInSimulation, AChangeAfterPostingIsSent) {
  const auto got = results({.ranks = 2}, [](ProcessGroup& world) {
    const Tensor tensor = tensor_of(world.rank(), 1);
    Work work = world.all_reduce_async(tensor);
    if (world.rank() == 0) tensor.fill(7);  // too early: rank 1 has not posted its part
    work.wait();
    return contents(tensor);
  });
  EXPECT_EQ(got[1], (Numbers{7 + numbers_of(1, 1)[0]}));
}

/// The diagnosis of a job that must have one.
std::string diagnosis_of(int ranks, const Body& body) {
  const auto report = simulate({.ranks = ranks}, body);
  return report.diagnosis ? report.diagnosis->text() : "none";
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "not in: " << text << "\n  " << part;
}

TEST(PostedInSimulation, AWaitForWhatAnotherRankNeverPosts) {
  const std::string text = diagnosis_of(3, [](ProcessGroup& world) {
    const Tensor first = blank(4);
    const Tensor second = blank(8);
    Work one = world.all_reduce_async(first);
    if (world.rank() == 1) return;
    Work two = world.all_reduce_async(second);
    one.wait();
    two.wait();
  });
  expect_in(text, "rank 1 exited with code 0 while rank 0 waited for it in all_reduce #2");
  expect_in(text, "rank 2 waits in all_reduce #2 (32 bytes): rank 1 has not entered it");
}

TEST(PostedInSimulation, AWaitWhileAPeerWaitsForSomethingElse) {
  const std::string text = diagnosis_of(2, [](ProcessGroup& world) {
    const Tensor tensor = blank(4);
    if (world.rank() == 1) world.recv(blank(1), 0, 3);
    world.all_reduce_async(tensor).wait();
    if (world.rank() == 0) world.send(blank(1), 1, 3);
  });
  expect_in(text,
            "deadlock: rank 0 waits for rank 1 in all_reduce #1, rank 1 for rank 0 in recv(tag 3)");
}

TEST(PostedInSimulation, TwoRanksThatPostInDifferentOrders) {
  const std::string text = diagnosis_of(2, [](ProcessGroup& world) {
    const Tensor small = blank(4);
    const Tensor large = blank(8);
    const bool first = world.rank() == 0;
    Work one = world.all_reduce_async(first ? small : large);
    Work two = world.all_reduce_async(first ? large : small);
    two.wait();  // what differs is queued before
    one.wait();
  });
  expect_in(text,
            "collective #1 of the world: rank 0 calls all_reduce (16 bytes), rank 1 calls "
            "all_reduce (32 bytes)");
  expect_in(text,
            "rank 0 waits in all_reduce #2 (32 bytes), queued after all_reduce #1 (16 bytes)");
}

TEST(PostedInSimulation, ABlockingCollectiveBehindOneThatDiffers) {
  const std::string text = diagnosis_of(2, [](ProcessGroup& world) {
    const Tensor tensor = blank(4);
    Work work = world.all_reduce_async(tensor, world.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
    world.barrier();
    work.wait();
  });
  expect_in(text,
            "rank 0 calls all_reduce (16 bytes, sum), rank 1 calls all_reduce (16 bytes, max)");
  expect_in(text, "rank 1 waits in barrier #2, queued after all_reduce #1");
}

TEST(PostedInSimulation, ARankThatDiesWithCollectivesUnderWay) {
  const SimulationOptions options{.ranks = 3, .death = {{.rank = 2, .operation = 3}}};
  const auto report = simulate(options, [](ProcessGroup& world) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int k = 0; k < 4; ++k) {
      tensors.push_back(blank(4));
      works.push_back(world.all_reduce_async(tensors.back()));
    }
    wait_all(works);
  });
  ASSERT_TRUE(report.diagnosis);
  expect_in(report.diagnosis->headline,
            "rank 2 was killed (signal 9: SIGKILL) while rank 0 waited");
  expect_in(report.diagnosis->headline, "all_reduce #");
}

TEST(PostedInSimulation, AGroupThatEndsSaysWhatItStillWaitsFor) {
  const auto report = simulate({.ranks = 2}, [](ProcessGroup& world) {
    if (world.rank() == 0) Work forgotten = world.all_reduce_async(blank(4));
    if (world.rank() == 1) world.recv(blank(1), 0);
  });
  ASSERT_TRUE(report.diagnosis);
  expect_in(report.diagnosis->headline, "rank 0 waits for rank 1 in all_reduce #1");
}

// 2 ranks, 1 s and 1 s per byte: a tensor of 8 bytes takes 2 rounds of 1 + 4 s, that is 10 s.
TEST(PostedInSimulation, TravelWhileTheRankComputes) {
  const CostModel costs{.inside = {.alpha = 1, .beta = 1}};
  const auto report = simulate({.ranks = 2, .costs = costs}, [](ProcessGroup& world) {
    const Tensor one = tensor_of(world.rank(), 2);
    const Tensor two = tensor_of(world.rank(), 2);
    world.advance_clock(world.rank() == 0 ? 1 : 4);
    Work first = world.all_reduce_async(one);  // starts at 4, when rank 1 has posted it
    world.advance_clock(5);
    Work second = world.all_reduce_async(two);  // starts at 14, when the first one is done
    world.advance_clock(world.rank() == 0 ? 12 : 3);
    first.wait();
    EXPECT_EQ(one.data()[1], numbers_of(0, 2)[1] + numbers_of(1, 2)[1]);
    second.wait();
  });
  ASSERT_TRUE(report.succeeded()) << explain(report);
  EXPECT_EQ(report.times->finish, (std::vector<double>{24, 24}));
  EXPECT_EQ(report.times->exposed, (std::vector<double>{6, 12}));
  const std::vector<int64_t> starts{1 + 4'000'000'000, 1 + 14'000'000'000};
  for (const auto& history : report.history)
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(history[i].started_ns, starts[i]);
      EXPECT_EQ(history[i].finished_ns, starts[i] + 10'000'000'000);
    }
}

// --- By made-up records: what must not be taken for a deadlock

OpRecord reduction(uint64_t sequence) { return collective(OpKind::kAllReduce, sequence, 64); }

TEST(PostedInDiagnoses, PostedEverywhereIsUnderWay) {
  Ranks ranks(2);
  ranks[0].posted(reduction(1));
  ranks[1].posted(reduction(1));
  ranks.wait(0, reduction(2));
  EXPECT_EQ(ranks.found(), "nothing") << "rank 1 computes, and will post the second one";
  ranks[1].posted(reduction(2));
  ranks.wait(1, recv(0));
  EXPECT_EQ(ranks.found(), "nothing") << "all have posted both";
}

TEST(PostedInDiagnoses, WhatTheNetworkIsDoneWithHoldsNobodyUp) {
  Ranks ranks(2);
  const uint64_t first = ranks[0].posted(reduction(1));
  ranks[0].started(first);
  ranks[0].finished(first);
  ranks[1].posted(reduction(1));
  ranks.wait(0, reduction(2));
  ranks.wait(1, recv(0));
  EXPECT_EQ(ranks.found(),
            "deadlock: rank 0 waits for rank 1 in all_reduce #2, rank 1 for rank 0 in recv(tag 0)");
  Ranks done(2);
  const uint64_t mine = done[1].posted(reduction(1));
  done[1].finished(mine);
  done.set_fate(1, RankFate::kKilled, 9);
  done.wait(0, reduction(1));
  EXPECT_EQ(done.found(), "nothing") << "rank 1 had done its part";
}

// --- Only over Gloo: deadlines and threads

TEST(PostedOverGloo, WhatDiffersMakesBothWaitAndNamesTheFirst) {
  const Errors errors = run_over_gloo(
      2,
      [](ProcessGroup& world) {
        const Tensor tensor = blank(world.rank() == 0 ? 4 : 5);
        const Tensor next = blank(2);
        Work one = world.all_reduce_async(tensor);
        Work two = world.all_reduce_async(next);
        two.wait();
        one.wait();
      },
      300ms);
  expect_in(errors[0], "rank 0: all_reduce #2 (8 bytes) broke off");
  EXPECT_NE(errors[1], "");
}

TEST(PostedOverGloo, ARankThatFailsLeavesAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const Errors errors = run_over_gloo(
      2,
      [](ProcessGroup& world) {
        if (world.rank() == 1) return;  // waits in a barrier
        Work work = world.all_reduce_async(blank(4));
        fail("rank 0 has had enough");
      },
      5s);
  EXPECT_EQ(errors[0], "rank 0 has had enough");
  EXPECT_NE(errors[1], "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

}  // namespace
}  // namespace lab::posted_collectives_test
