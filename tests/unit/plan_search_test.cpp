// Planning: which layouts there are, which fit, which is best, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/tools/plan/model_cost.h"
#include "common/tools/plan/plan_report.h"
#include "common/tools/plan/presets.h"
#include "common/tools/plan/search.h"
#include "tests/unit/error_of.h"

namespace lab::plan_search_test {
namespace {

Cluster six_devices() {
  return {.device = {"six", 1e12, 1e9, 1e11},
          .devices = 6,
          .per_host = 3,
          .inside = {1e10, 1e-6},
          .between = {1e9, 1e-5}};
}

bool has(const std::vector<Layout>& layouts, const Layout& layout) {
  return std::ranges::find(layouts, layout) != layouts.end();
}

TEST(PlanSearch, LayoutsTakeAllDevicesAndTheWholeBatch) {
  const Training training;  // 12 sequences, 6 layers
  const auto all = layouts(training, six_devices(), {});
  for (const Layout& layout : all) {
    EXPECT_EQ(layout.ranks(), 6);
    EXPECT_EQ(12 % (layout.dp * layout.m), 0);
  }
  // dp 1: m divides 12, six numbers; dp 2: divides 6; dp 3: divides 4; dp 6: divides 2.
  EXPECT_EQ(all.size(), 6U + 4U + 3U + 2U);
  EXPECT_TRUE(has(all, {2, 3, 6}));

  const auto ones = layouts(training, six_devices(), {.microbatch = 1});
  EXPECT_EQ(ones, (std::vector<Layout>{{6, 1, 2}, {3, 2, 4}, {2, 3, 6}, {1, 6, 12}}));

  const auto fewer = layouts(training, six_devices(), {.microbatch = 1, .fewer = true});
  for (const Layout& layout : {Layout{1, 1, 12}, {1, 3, 12}, {3, 1, 4}, {2, 3, 6}})
    EXPECT_TRUE(has(fewer, layout));
  EXPECT_FALSE(has(fewer, {4, 1, 3})) << "four is no divisor of six";
}

TEST(PlanSearch, ATiedHeadIsNotCut) {
  Training training;
  training.model.tied_head = true;
  for (const Layout& layout : layouts(training, six_devices(), {})) EXPECT_EQ(layout.pp, 1);
  EXPECT_TRUE(contains(error_of([&] { estimate(training, six_devices(), {2, 3, 6}); }), "tied"));
}

TEST(PlanSearch, FitsToTheByte) {
  const Training training;
  Cluster cluster = six_devices();
  const Estimate roomy = estimate(training, cluster, {2, 3, 6});
  EXPECT_EQ(roomy.largest_memory(), *std::ranges::max_element(roomy.memory));
  cluster.device.memory = roomy.largest_memory();
  EXPECT_TRUE(estimate(training, cluster, {2, 3, 6}).fits());
  cluster.device.memory -= 1;
  const Estimate tight = estimate(training, cluster, {2, 3, 6});
  EXPECT_FALSE(tight.fits());
  EXPECT_DOUBLE_EQ(tight.missing, 1);

  // Ranks that share a machine share its memory.
  cluster.per_host = 6;
  cluster.cores = 2;
  cluster.device.memory = 2 * (roomy.memory[0] + roomy.memory[1] + roomy.memory[2]);
  EXPECT_TRUE(estimate(training, cluster, {2, 3, 6}).fits());
  cluster.device.memory -= 10;
  EXPECT_DOUBLE_EQ(estimate(training, cluster, {2, 3, 6}).missing, 10);
}

TEST(PlanSearch, WhatFitsComesFirstThenWhatIsFast) {
  const Training training;
  Cluster cluster = six_devices();
  cluster.device.memory = 100e6;  // the whole model needs 165 MB for its parameters
  const auto ranked = search(training, cluster, {});
  const auto rest = std::ranges::find_if(ranked, [](const Estimate& e) { return !e.fits(); });
  ASSERT_NE(rest, ranked.begin());
  ASSERT_NE(rest, ranked.end());
  EXPECT_TRUE(std::is_sorted(ranked.begin(), rest, [](const Estimate& a, const Estimate& b) {
    return a.tokens_per_s > b.tokens_per_s + 1;
  }));
  EXPECT_TRUE(std::is_sorted(rest, ranked.end(), [](const Estimate& a, const Estimate& b) {
    return a.missing < b.missing;
  }));
  EXPECT_TRUE(std::none_of(rest, ranked.end(), [](const Estimate& e) { return e.fits(); }));
  for (const Estimate& e : ranked) EXPECT_FALSE(e.fits() && e.layout.pp == 1);
}

TEST(PlanSearch, TheBestIsNamedWithAReason) {
  Cluster cluster = six_devices();
  const auto roomy = search(Training{}, cluster, {});
  const Layout& best = roomy.front().layout;
  const std::string text = verdict(roomy);
  EXPECT_TRUE(
      contains(text, fmt::format("Best: dp {} x pp {} with m {},", best.dp, best.pp, best.m)))
      << text;
  EXPECT_TRUE(contains(text, "The next mesh is dp")) << text;
  EXPECT_FALSE(contains(text, "do not fit")) << text;
  cluster.device.memory = 72e6;  // of 1 x 6 the fullest stage, with the head, holds 70 MB
  const std::string tight = verdict(search(Training{}, cluster, {}));
  EXPECT_TRUE(contains(tight, "Best: dp 1 x pp 6")) << tight;
  EXPECT_TRUE(contains(tight, "Fewer than 6 stages do not fit")) << tight;
  EXPECT_TRUE(contains(tight, "No other dp x pp fits")) << tight;
}

TEST(PlanSearch, WhereNothingFitsTheClosestIsNamed) {
  Cluster cluster = six_devices();
  cluster.device.memory = 1e6;
  const auto ranked = search(Training{}, cluster, {});
  EXPECT_TRUE(contains(verdict(ranked), "Nothing fits. Closest is")) << verdict(ranked);
  const auto json = nlohmann::json::parse(plan_json(Training{}, cluster, ranked));
  EXPECT_TRUE(json["best"].is_null());
}

TEST(PlanSearch, OfEquallyFastOnesTheSmallestIsBest) {
  // One device: the number of microbatches changes nothing but the memory.
  Cluster cluster = six_devices();
  cluster.devices = 1;
  const auto ranked = search(Training{}, cluster, {});
  ASSERT_EQ(ranked.size(), 6U);
  EXPECT_EQ(ranked.front().layout, (Layout{1, 1, 12}));
  EXPECT_EQ(ranked.back().layout, (Layout{1, 1, 1}));
}

TEST(PlanSearch, WithFreeMessagesStagesOnlyCost) {
  Cluster cluster = six_devices();
  cluster.inside = cluster.between = {1e30, 0};
  cluster.device.memory_bandwidth = 1e30;
  EXPECT_EQ(search(Training{}, cluster, {}).front().layout.pp, 1);
}

TEST(PlanSearch, TableAndJsonSayTheSame) {
  Cluster cluster = six_devices();
  cluster.device.memory = 100e6;
  const auto ranked = search(Training{}, cluster, {.microbatch = 1});
  const std::string table = plan_table(ranked, 0);
  EXPECT_TRUE(contains(table, "too much")) << table;
  EXPECT_TRUE(contains(plan_table(ranked, 1), "and 3 more")) << table;
  const auto json = nlohmann::json::parse(plan_json(Training{}, cluster, ranked));
  ASSERT_EQ(json["estimates"].size(), ranked.size());
  EXPECT_EQ(json["best"]["dp"], ranked[0].layout.dp);
  EXPECT_EQ(json["verdict"], verdict(ranked));
  EXPECT_EQ(json["training"]["parameters"], 10325664);
  for (size_t i = 0; i < ranked.size(); ++i) {
    EXPECT_EQ(json["estimates"][i]["tokens_per_s"], ranked[i].tokens_per_s);
    EXPECT_EQ(json["estimates"][i]["fits"], ranked[i].fits());
    EXPECT_EQ(json["estimates"][i]["layers"].size(), static_cast<size_t>(ranked[i].layout.pp));
  }
}

TEST(PlanSearch, ALargeModelOnManyDevices) {
  const DevicePreset h100 = device_preset("h100");
  const Cluster cluster{.device = h100.device,
                        .devices = 1024,
                        .per_host = 8,
                        .inside = h100.inside,
                        .between = h100.between};
  Training training = training_preset("70b");
  training.recompute = true;
  const auto ranked = search(training, cluster, {});
  ASSERT_TRUE(ranked.front().fits());
  // 18 bytes for each of 69 billion parameters, 80 GB a device.
  EXPECT_GE(ranked.front().layout.pp, 16);
  // Parts within a host save stages, and the bubble with them.
  const auto slices = search(training, cluster, {.tp = 8});
  ASSERT_TRUE(slices.front().fits());
  EXPECT_EQ(slices.front().layout.ranks(), 1024);
  EXPECT_LT(slices.front().layout.pp, ranked.front().layout.pp);
  EXPECT_GT(slices.front().tokens_per_s, ranked.front().tokens_per_s);
  EXPECT_TRUE(contains(verdict(slices), "x tp 8 with m"));
}

TEST(PlanSearch, WhatMakesNoSenseIsRefused) {
  const auto refused = [](const Training& training, const Cluster& cluster,
                          const SearchOptions& options = {}) {
    return error_of([&] { search(training, cluster, options); });
  };
  EXPECT_EQ(refused(Training{}, six_devices()), "");
  Cluster seven = six_devices();
  seven.devices = 7;
  EXPECT_TRUE(contains(refused(Training{}, seven), "no dp x pp suits 7 devices"));
  EXPECT_TRUE(contains(refused(Training{}, six_devices(), {.microbatch = 5}), "5 a microbatch"));
  EXPECT_NE(refused(Training{}, six_devices(), {.microbatch = -1}), "");

  Training training;
  training.batch = 0;
  EXPECT_TRUE(contains(refused(training, six_devices()), "0 sequences"));
  training = {};
  training.length = 257;
  EXPECT_TRUE(contains(refused(training, six_devices()), "context is 256"));
  training = {};
  training.precision.parameter = 0;
  EXPECT_TRUE(contains(refused(training, six_devices()), "bytes of a number"));
  training = {};
  training.model.heads = 5;
  EXPECT_TRUE(contains(refused(training, six_devices()), "heads"));

  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {0.0, -1.0, nan}) {
    for (const auto& change : std::vector<std::function<void(Cluster&)>>{
             [&](Cluster& c) { c.device.flops = bad; }, [&](Cluster& c) { c.device.memory = bad; },
             [&](Cluster& c) { c.device.memory_bandwidth = bad; },
             [&](Cluster& c) { c.inside.bandwidth = bad; },
             [&](Cluster& c) { c.between.bandwidth = bad; },
             [&](Cluster& c) { c.between.latency = bad == 0 ? -1 : bad; }}) {
      Cluster cluster = six_devices();
      change(cluster);
      EXPECT_NE(refused(Training{}, cluster), "");
    }
  }
  Cluster cluster = six_devices();
  cluster.devices = 0;
  EXPECT_TRUE(contains(refused(Training{}, cluster), "0 devices"));
  cluster = six_devices();
  cluster.cores = 2;
  EXPECT_TRUE(contains(refused(Training{}, cluster), "one machine only"));

  for (const Layout& layout : {Layout{0, 1, 1}, {1, 7, 1}, {7, 1, 1}, {2, 3, 4}, {1, 1, 0}}) {
    Cluster many = six_devices();
    many.devices = layout.pp == 7 ? 7 : 6;
    EXPECT_NE(error_of([&] { estimate(Training{}, many, layout); }), "");
  }
}

}  // namespace
}  // namespace lab::plan_search_test
