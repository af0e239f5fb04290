// Random simulated programs: right numbers from every seed, and the same run from the same seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "common/comm/sim/simulation.h"
#include "tests/unit/simulated_job.h"

namespace lab::simulation_random_test {
namespace {

// A step of a random program. All ranks walk through the same list in the same order; a message
// that is not waited for at once is waited for some steps later. So no step can wait for a later
// one, and nothing deadlocks.
struct Step {
  bool collective = false;
  int from = 0;
  int to = 0;
  int tag = 0;
  int64_t count = 0;
  size_t sent_by = 0;  // the step before which the sender waits
  size_t received_by = 0;
};

std::vector<Step> random_program(int ranks, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  std::vector<Step> steps(30);
  for (size_t i = 0; i < steps.size(); ++i) {
    Step& step = steps[i];
    step.collective = below(6) == 0;
    step.from = below(ranks);
    step.to = (step.from + 1 + below(ranks - 1)) % ranks;
    step.tag = below(2);
    step.count = below(3) == 0 ? below(2) : below(50);
    step.sent_by = i + 1 + static_cast<size_t>(below(2) * below(8));
    step.received_by = i + 1 + static_cast<size_t>(below(2) * below(8));
  }
  return steps;
}

// Everything that this rank has received, in the order of the steps.
Numbers run_program(ProcessGroup& world, const std::vector<Step>& steps) {
  std::multimap<size_t, Work> works;
  std::vector<Tensor> received;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    while (!works.empty() && works.begin()->first <= i) {
      works.begin()->second.wait();
      works.erase(works.begin());
    }
    if (step.collective) {
      received.push_back(tensor_of(world.rank(), step.count));
      world.all_reduce(received.back());
    } else if (step.from == world.rank()) {
      works.emplace(step.sent_by,
                    world.isend(tensor_of(static_cast<int>(i), step.count), step.to, step.tag));
    } else if (step.to == world.rank()) {
      received.push_back(blank(step.count));
      works.emplace(step.received_by, world.irecv(received.back(), step.from, step.tag));
    }
  }
  for (auto& [step, work] : works) work.wait();
  Numbers all;
  for (const Tensor& tensor : received) std::ranges::copy(contents(tensor), back_inserter(all));
  return all;
}

Numbers expected_of_program(int ranks, int rank, const std::vector<Step>& steps) {
  Numbers all;
  for (size_t i = 0; i < steps.size(); ++i) {
    Numbers numbers = numbers_of(static_cast<int>(i), steps[i].count);
    if (steps[i].collective) {
      std::ranges::fill(numbers, 0.0F);
      for (int r = 0; r < ranks; ++r) {
        const Numbers part = numbers_of(r, steps[i].count);
        std::ranges::transform(numbers, part, numbers.begin(), std::plus());
      }
    } else if (steps[i].to != rank) {
      continue;
    }
    std::ranges::copy(numbers, back_inserter(all));
  }
  return all;
}

TEST(SimulationRandom, RandomProgramsFinishWithTheRightNumbers) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 5);
    const auto steps = random_program(ranks, seed);
    const SimulationOptions options{.ranks = ranks,
                                    .seed = seed,
                                    .buffered_bytes = seed % 3 == 0 ? 64U : 0U,
                                    .max_delay = static_cast<int>(seed % 4) * 5,
                                    .shuffle_ranks = seed % 2 == 0};
    const auto got =
        results(options, [&](ProcessGroup& world) { return run_program(world, steps); });
    for (int r = 0; r < ranks; ++r)
      ASSERT_EQ(got[static_cast<size_t>(r)], expected_of_program(ranks, r, steps))
          << "seed " << seed << ", rank " << r;
  }
}

// Everything that may not differ between two runs.
std::string fingerprint(const SimulationReport& report) {
  std::string text = explain(report);
  for (const auto& history : report.history) {
    for (const OpRecord& op : history)
      text += fmt::format("{} {} group {} peer {} tag {} bytes {} number {} at {} {} {}\n", op.id,
                          op_name(op.kind), op.group, op.peer, op.tag, op.bytes, op.sequence,
                          op.posted_ns, op.waiting_ns, op.done_ns);
    text += "--\n";
  }
  return text;
}

TEST(SimulationRandom, TheSameSeedGivesTheSameRun) {
  const auto steps = random_program(5, 42);
  const auto run = [&](uint64_t seed) {
    std::string order;  // in which the ranks have finished their steps
    const auto report = simulate({.ranks = 5, .seed = seed, .max_delay = 10, .shuffle_ranks = true},
                                 [&](ProcessGroup& world) {
                                   for (int i = 0; i < 5; ++i) {
                                     run_program(world, steps);
                                     order += std::to_string(world.rank());
                                   }
                                 });
    EXPECT_TRUE(report.succeeded()) << explain(report);
    return order + fingerprint(report);
  };
  const std::string first = run(1);
  for (int i = 1; i < 20; ++i) ASSERT_EQ(run(1), first) << "run " << i;
  EXPECT_NE(run(2), first);
}

TEST(SimulationRandom, ADiagnosisCanBeRepeated) {
  const SimulationOptions options{.ranks = 5,
                                  .seed = 9,
                                  .max_delay = 10,
                                  .shuffle_ranks = true,
                                  .death = {{.rank = 3, .operation = 12}}};
  const auto run = [&] {
    return fingerprint(simulate(options, [&](ProcessGroup& world) {
      run_program(world, random_program(5, 42));
      run_program(world, random_program(5, 43));
    }));
  };
  const std::string first = run();
  EXPECT_NE(first.find("killed at operation 12"), std::string::npos);
  for (int i = 1; i < 20; ++i) ASSERT_EQ(run(), first) << "run " << i;
}

}  // namespace
}  // namespace lab::simulation_random_test
