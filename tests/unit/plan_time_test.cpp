// Planning: how long pipelines, all-reduces and steps take by the cost model.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/pipeline/validate.h"
#include "common/tools/plan/estimate.h"
#include "common/tools/plan/model_cost.h"
#include "common/tools/plan/shared_cores.h"
#include "tests/unit/error_of.h"
#include "tests/unit/pipeline_plans.h"

namespace lab::plan_time_test {
namespace {

constexpr double kTiny = 1e-9;  // relative

double largest(const std::vector<double>& values) { return std::ranges::max(values); }

/// Devices of which only the rate counts: memory without end, updates and messages in no time.
Cluster ideal_cluster(int devices) {
  return {.device = {"ideal", 1e12, 1e18, 1e30},
          .devices = devices,
          .per_host = 4,
          .inside = {1e30, 0},
          .between = {1e30, 0}};
}

/// The last stage has the head and takes longer than the others.
Training workbook() { return {}; }

/// With a head that is nearly free, so that stages of equally many layers are equal.
Training equal_stages() {
  Training training;
  training.model.vocab_size = 1;
  training.batch = 24;
  return training;
}

TEST(PlanTime, PlansAreThoseOfTheLabs) {
  for (const int p : {1, 2, 3, 5})
    for (const int m : {1, 2, 3, 7}) {
      EXPECT_EQ(pass_plan(PassOrder::kGpipe, p, m), gpipe_plan(p, m));
      EXPECT_EQ(pass_plan(PassOrder::kOneFOneB, p, m), one_f_one_b_plan(p, m));
      for (int s = 0; s < p; ++s)
        for (const PassOrder order : {PassOrder::kGpipe, PassOrder::kOneFOneB})
          EXPECT_EQ(peak_in_flight(simulate(pass_plan(order, p, m)), s),
                    most_in_flight(order, s, p, m));
    }
}

TEST(PlanTime, EqualStagesTakeTheClosedFormula) {
  for (const PassOrder order : {PassOrder::kGpipe, PassOrder::kOneFOneB})
    for (const int m : {1, 4, 24, 25, 1000}) {
      const std::vector<StageCosts> costs(3, {.forward = 1, .backward = 2});
      EXPECT_NEAR(largest(stage_ends(order, m, costs)), 3 * (m + 2), 1e-6);
    }
}

TEST(PlanTime, ManyMicrobatchesGoOnAsSimulated) {
  const std::vector<StageCosts> costs = {
      {1.0, 2.0, 0.25}, {1.1, 2.3, 0.5}, {1.0, 1.7, 0.1}, {1.5, 2.9, 0.3}};
  for (const PassOrder order : {PassOrder::kGpipe, PassOrder::kOneFOneB}) {
    const Timeline whole = simulate(pass_plan(order, 4, 300), costs);
    const std::vector<double> ends = stage_ends(order, 300, costs);
    for (size_t s = 0; s < 4; ++s)
      EXPECT_NEAR(ends[s], whole.ranks[s].spans.back().end, 1e-6 * ends[s]) << "stage " << s;
    const double shared = largest(ends_on_shared_cores(pass_plan(order, 4, 300), costs, 1.5));
    EXPECT_NEAR(largest(stage_ends(order, 300, costs, 1.5)), shared, 0.005 * shared);
  }
}

TEST(PlanTime, EnoughCoresAreAsManyAsStages) {
  const std::vector<StageCosts> costs = {{1.0, 2.0, 0.5}, {1.3, 2.6, 0.25}, {0.7, 1.4, 0.75}};
  for (const PassOrder order : {PassOrder::kGpipe, PassOrder::kOneFOneB}) {
    const Schedule plan = pass_plan(order, 3, 7);
    const Timeline alone = simulate(plan, costs);
    const std::vector<double> ends = ends_on_shared_cores(plan, costs, 3);
    for (size_t s = 0; s < 3; ++s) EXPECT_NEAR(ends[s], alone.ranks[s].spans.back().end, kTiny);
  }
}

TEST(PlanTime, SharedCoresByHand) {
  // Two stages, one microbatch: never two at once, so one core is enough.
  const std::vector<StageCosts> costs(2, {.forward = 1, .backward = 2});
  const Schedule one = pass_plan(PassOrder::kGpipe, 2, 1);
  EXPECT_NEAR(largest(ends_on_shared_cores(one, costs, 1)), 6, kTiny);
  EXPECT_NEAR(largest(ends_on_shared_cores(one, costs, 0.5)), 12, kTiny);
  // Two microbatches on one core: all the work, one thing after the other; F1 of stage 0 and F0 of
  // stage 1 share it.
  const Schedule two = pass_plan(PassOrder::kGpipe, 2, 2);
  EXPECT_NEAR(largest(ends_on_shared_cores(two, costs, 1)), 12, kTiny);
  EXPECT_NEAR(largest(ends_on_shared_cores(two, costs, 2)), 9, kTiny);
  EXPECT_NE(error_of([&] { ends_on_shared_cores(two, costs, 0); }), "");
  EXPECT_NE(error_of([&] { ends_on_shared_cores(two, {{}}, 1); }), "");
  EXPECT_NE(error_of([&] { ends_on_shared_cores(with_messages_beside(two, true), costs, 1); }), "");
}

TEST(PlanTime, AllReduceByHand) {
  const Link link{1e9, 1e-3};
  EXPECT_DOUBLE_EQ(all_reduce_seconds(link, 4e9, 1), 0);
  // Two messages of 2 GB.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(link, 4e9, 2), 2 * (1e-3 + 2));
  // Six messages of 1 GB.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(link, 4e9, 4), 6 * (1e-3 + 1));
}

/// Six slices of the workbook's model, whose vocabulary of 4,096 leaves 683 for the largest.
TEST(PlanTime, PartsByHand) {
  Training training = workbook();
  training.batch = 1;
  Cluster cluster = ideal_cluster(6);
  cluster.per_host = 6;
  const Layout layout{.dp = 1, .pp = 1, .m = 1, .tp = 6};
  const double layers = 6 * 2 * (1327104.0 + 73728) / 6;
  const double head = 2.0 * 683 * 288;
  const double compute = 3 * 256 * (layers + head) / 1e12;
  EXPECT_NEAR(estimate(training, cluster, layout).step, compute, 1e-6 * compute);

  // 26 all-reduces of 256 * 288 numbers: ten messages of a sixth each.
  cluster.inside = {1e9, 1e-3};
  const double message = 1e-3 + 256.0 * 288 * 4 / 6 / 1e9;
  const Estimate slow = estimate(training, cluster, layout);
  EXPECT_NEAR(slow.step, compute + 26 * 10 * message, 1e-6 * slow.step);
  EXPECT_NEAR(slow.communication, 26 * 10 * message / slow.step, 1e-6);
  // Norms are on every rank, matrices divided.
  const double parameters = 6 * (1327104.0 / 6 + 2 * 288) + 2 * 683 * 288 + 288;
  EXPECT_GT(slow.memory[0], 16 * parameters);
  EXPECT_LT(slow.memory[0], estimate(training, cluster, {1, 1, 1}).memory[0] / 4);

  cluster.per_host = 3;  // the slices span two hosts
  cluster.between = {1e8, 1e-3};
  EXPECT_GT(estimate(training, cluster, layout).step, slow.step);
  Training odd = training;
  odd.model.heads = odd.model.kv_heads = 4;
  EXPECT_EQ(error_of([&] { estimate(odd, cluster, layout); }),
            "model: 4 heads cannot be divided equally among 6 ranks");
}

TEST(PlanTime, OneDeviceRunsAtItsRate) {
  const Training training = workbook();
  const StageFlops flops =
      stage_flops(training.model, StageSpan::whole(training.model), 256, false);
  for (const int m : {1, 3, 12}) {
    const Estimate e = estimate(training, ideal_cluster(1), {1, 1, m});
    EXPECT_NEAR(e.tokens_per_s, 1e12 / (flops.forward + flops.backward), 1);
    EXPECT_NEAR(e.compute, 1, kTiny);
  }
}

TEST(PlanTime, OneMeasurementIsPredictedAsItWas) {
  const Training training = workbook();
  for (const int cores : {0, 2}) {
    Cluster cluster = ideal_cluster(1);
    cluster.cores = cores;
    cluster.device.memory_bandwidth = 1e10;
    cluster.device.flops = calibrated_flops(training, cluster, 2501);
    EXPECT_NEAR(estimate(training, cluster, {1, 1, 12}).tokens_per_s, 2501, 1e-6);
  }
  Cluster slow_memory = ideal_cluster(1);
  slow_memory.device.memory_bandwidth = 1e6;
  EXPECT_TRUE(
      contains(error_of([&] { calibrated_flops(training, slow_memory, 2501); }), "cannot be"));
  EXPECT_NE(error_of([&] { calibrated_flops(training, ideal_cluster(1), -1); }), "");
}

TEST(PlanTime, ABubbleIsTheKnownOne) {
  const Training training = equal_stages();
  for (const int m : {1, 3, 6, 12, 24}) {
    const Estimate e = estimate(training, ideal_cluster(3), {1, 3, m});
    EXPECT_NEAR(e.bubble, ideal_bubble(3, m), 1e-3) << "m = " << m;
    EXPECT_NEAR(e.communication + e.update, 0, kTiny);
  }
}

TEST(PlanTime, SharesOfAStepAddUp) {
  Cluster cluster = ideal_cluster(8);
  cluster.inside = {1e8, 1e-4};
  cluster.between = {1e7, 1e-3};
  cluster.device.memory_bandwidth = 1e10;
  for (const Layout& layout : {Layout{1, 1, 12}, {2, 3, 2}, {2, 4, 6}, {4, 2, 3}, {6, 1, 1}}) {
    const Estimate e = estimate(workbook(), cluster, layout);
    EXPECT_NEAR(e.compute + e.bubble + e.communication + e.update, 1, kTiny);
    EXPECT_GE(std::min({e.compute, e.bubble, e.communication, e.update}), 0);
    EXPECT_NEAR(e.tokens_per_s * e.step, 12 * 256, 1e-6);
  }
}

/// When the stages have done their passes, where messages are free.
std::vector<double> free_ends(const Training& training, int stages, int microbatches,
                              double message = 0) {
  std::vector<StageCosts> costs;
  for (const StageSpan& span : balanced_spans(training.model, stages, 256)) {
    const StageFlops flops = stage_flops(training.model, span, 256, false);
    costs.push_back({flops.forward * 256 / 1e12, flops.backward * 256 / 1e12, message});
  }
  return stage_ends(PassOrder::kOneFOneB, microbatches, costs);
}

double reduce_seconds(const Training& training, const Link& link, int stages, size_t stage) {
  const StageSpan span = balanced_spans(training.model, stages, 256)[stage];
  return all_reduce_seconds(link, 4.0 * static_cast<double>(parameter_count(training.model, span)),
                            2);
}

TEST(PlanTime, AnAllReduceBeginsWhenItsStageIsDone) {
  // Two pipelines of four stages with 1, 2, 2, 1 layers, each on its own host: messages are free,
  // all-reduces are not. Stage 1 has more to add up than stage 0, but is done before it.
  Training training = equal_stages();
  training.batch = 12;
  const std::vector<double> ends = free_ends(training, 4, 6);
  ASSERT_GT(ends[0], ends[1]);
  Cluster cluster = ideal_cluster(8);
  cluster.per_host = 4;
  for (const double bandwidth : {1e7, 1e9, 1e12, 1e14}) {
    cluster.between = {bandwidth, 0};
    const double first = reduce_seconds(training, cluster.between, 4, 0);
    const double second = reduce_seconds(training, cluster.between, 4, 1);
    ASSERT_GT(second, 1.9 * first);
    const Estimate e = estimate(training, cluster, {2, 4, 6});
    const double expected = std::max(ends[0] + first, ends[1] + second);
    EXPECT_NEAR(e.step, expected, kTiny * expected);
    EXPECT_NEAR(e.communication * e.step, expected - ends[0], kTiny * expected);
    EXPECT_LT(e.step, ends[0] + second) << "nobody waits for stage 0 before its own all-reduce";
  }
}

TEST(PlanTime, TheSlowestLinkOfAPipelineCounts) {
  // Three stages, two per host: pipeline 0 crosses hosts after stage 1, pipeline 1 after stage 0.
  Cluster cluster = ideal_cluster(6);
  cluster.per_host = 2;
  cluster.between = {1e9, 0};
  const Training training = workbook();
  const std::vector<double> ends = free_ends(training, 3, 6, /*message=*/256 * 288 * 4 / 1e9);
  double expected = 0;
  for (size_t s = 0; s < 3; ++s)
    expected = std::max(expected, ends[s] + reduce_seconds(training, cluster.between, 3, s));
  EXPECT_NEAR(estimate(training, cluster, {2, 3, 6}).step, expected, kTiny * expected);
}

TEST(PlanTime, UpdatesGoByMemoryBandwidth) {
  const Training training = workbook();
  Cluster cluster = ideal_cluster(3);
  cluster.device.memory_bandwidth = 1e9;
  const double bytes = 36.0 * static_cast<double>(parameter_count(training.model));
  const Estimate own = estimate(training, cluster, {3, 1, 1});
  EXPECT_NEAR(own.update * own.step, bytes / 1e9, kTiny);
  cluster.cores = 3;
  const Estimate shared = estimate(training, cluster, {3, 1, 1});
  EXPECT_NEAR(shared.update * shared.step, 3 * bytes / 1e9, kTiny);
}

TEST(PlanTime, RanksThatShareCoresAreNoFasterThanTheCores) {
  Cluster cluster = ideal_cluster(12);
  cluster.per_host = 12;
  cluster.cores = 2;
  const double one = estimate(workbook(), cluster, {1, 1, 12}).tokens_per_s;
  for (const Layout& layout :
       {Layout{1, 2, 12}, {1, 3, 12}, {2, 1, 6}, {2, 3, 6}, {3, 2, 4}, {6, 1, 2}, {12, 1, 1}}) {
    const Estimate e = estimate(workbook(), cluster, layout);
    EXPECT_LE(e.tokens_per_s, one * (1 + kTiny)) << layout.dp << " x " << layout.pp;
  }
  EXPECT_NEAR(estimate(workbook(), cluster, {2, 1, 6}).tokens_per_s, one, 1e-6 * one);
  EXPECT_NEAR(estimate(workbook(), cluster, {4, 1, 3}).tokens_per_s, one, 1e-6 * one);
}

TEST(PlanTime, AFasterLinkIsNeverSlower) {
  for (const Layout& layout : {Layout{1, 3, 4}, {2, 3, 6}, {4, 2, 3}, {6, 1, 2}}) {
    double before = 0;
    for (const double bandwidth : {1e6, 1e7, 1e8, 1e9, 1e10, 1e12}) {
      Cluster cluster = ideal_cluster(8);
      cluster.inside = {2 * bandwidth, 1e-5};
      cluster.between = {bandwidth, 1e-4};
      const double rate = estimate(workbook(), cluster, layout).tokens_per_s;
      EXPECT_GT(rate, before);
      before = rate;
      cluster.between.latency = 1e-2;
      const double later = estimate(workbook(), cluster, layout).tokens_per_s;
      const bool one_host = layout.ranks() <= cluster.per_host;
      EXPECT_TRUE(one_host ? later == rate : later < rate) << later << " after " << rate;
    }
  }
}

TEST(PlanTime, MoreMicrobatchesMeanASmallerBubble) {
  for (const int cores : {0, 2}) {
    Cluster cluster = ideal_cluster(3);
    cluster.cores = cores;
    double before = 1;
    for (const int m : {1, 2, 3, 4, 6, 12, 24}) {
      const double bubble = estimate(equal_stages(), cluster, {1, 3, m}).bubble;
      EXPECT_LT(bubble, before) << "m = " << m << ", cores " << cores;
      before = bubble;
    }
  }
}

}  // namespace
}  // namespace lab::plan_time_test
