// Cutting a model into stages: the cost of the head, and what is no cut.
#include "common/model/split.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/model/llama_stage.h"
#include "tests/unit/error_of.h"

namespace lab::split_test {
namespace {

TEST(Split, TheHeadOfTheWorkbooksModelCostsLessThanALayer) {
  // By hand: a layer multiplies 4*288*288 + 3*288*1152 + 2*288*128 times per token, the head
  // 4096*288 times.
  const LlamaConfig config;
  EXPECT_DOUBLE_EQ(head_cost(config, 256), 1179648.0 / (331776.0 + 995328.0 + 73728.0));
  LlamaConfig large = config;
  large.vocab_size = 32000;
  EXPECT_NEAR(head_cost(large, 256) / head_cost(config, 256), 32000.0 / 4096.0, 1e-12);
  EXPECT_LT(head_cost(config, 512), head_cost(config, 256)) << "attention grows with the length";
}

TEST(Split, GroupedQueriesMakeALayerCheaper) {
  LlamaConfig grouped;
  grouped.kv_heads = 2;
  EXPECT_GT(head_cost(grouped, 256), head_cost(LlamaConfig{}, 256));
}

TEST(Split, SpansFollowTheCounts) {
  const auto spans = spans_of(LlamaConfig{}, {3, 2, 1});
  const std::vector<StageSpan> expected = {
      {0, 3, true, false}, {3, 5, false, false}, {5, 6, false, true}};
  EXPECT_EQ(spans, expected);
  EXPECT_EQ(spans_of(LlamaConfig{}, {6}), std::vector{StageSpan::whole(LlamaConfig{})});
}

TEST(Split, WhatIsNoSplitIsRefused) {
  const LlamaConfig config;
  const auto refused = [&](std::vector<StageSpan> spans) {
    return error_of([&] { check_spans(config, spans); });
  };
  EXPECT_EQ(refused({{0, 2, true, false}, {2, 6, false, true}}), "");
  EXPECT_NE(refused({}), "");
  EXPECT_NE(refused({{0, 2, true, false}, {3, 6, false, true}}).find("begins with layer 3"),
            std::string::npos);
  EXPECT_NE(refused({{0, 2, true, false}, {1, 6, false, true}}), "");
  EXPECT_NE(refused({{0, 6, true, false}, {6, 6, false, true}}).find("no layers"),
            std::string::npos);
  EXPECT_NE(refused({{0, 2, true, false}, {2, 5, false, true}}).find("the model has 6"),
            std::string::npos);
  EXPECT_NE(refused({{0, 2, false, false}, {2, 6, false, true}}).find("embed"), std::string::npos);
  EXPECT_NE(refused({{0, 2, true, true}, {2, 6, false, true}}).find("head"), std::string::npos);
  EXPECT_NE(refused({{0, 2, true, false}, {2, 6, false, false}}).find("lacks the head"),
            std::string::npos);
  EXPECT_THROW(spans_of(config, {3, 3, 0}), Error);
  EXPECT_THROW(spans_of(config, {3, 2}), Error);
}

TEST(Split, TheCountOfWeightsIsThatOfTheStages) {
  for (const bool tied : {false, true}) {
    LlamaConfig config;
    config.vocab_size = 50;
    config.dim = 24;
    config.heads = 4;
    config.kv_heads = 2;
    config.layers = 3;
    config.hidden_dim = 40;
    config.tied_head = tied;
    const LlamaStage whole(config, StageSpan::whole(config), Device::kCpu, 1);
    EXPECT_EQ(parameter_count(config), whole.parameter_count());
  }
}

}  // namespace
}  // namespace lab::split_test
