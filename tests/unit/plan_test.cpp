// Planning: what a stage computes and holds, against hand-made figures and LlamaStage itself.
#include <gtest/gtest.h>

#include "common/model/llama_stage.h"
#include "common/model/split.h"
#include "common/tools/plan/estimate.h"
#include "common/tools/plan/model_cost.h"
#include "common/tools/plan/presets.h"
#include "tests/unit/error_of.h"

namespace lab::plan_test {
namespace {

LlamaConfig tiny(int64_t kv_heads, bool tied) {
  LlamaConfig config;
  config.vocab_size = 50;
  config.dim = 24;
  config.heads = 4;
  config.kv_heads = kv_heads;
  config.layers = 5;
  config.hidden_dim = 40;
  config.context = 16;
  config.tied_head = tied;
  return config;
}

/// Bytes that a stage holds after `microbatches` forwards of `batch` sequences.
size_t held_bytes(const LlamaConfig& config, const StageSpan& span, int microbatches, int64_t batch,
                  int64_t length) {
  LlamaStage stage(config, span, Device::kCpu, 1);
  const TokenBatch tokens{batch, length, std::vector<int32_t>(static_cast<size_t>(batch * length))};
  const Tensor hidden = Tensor::zeros({batch, length, config.dim});
  for (int k = 0; k < microbatches; ++k)
    span.embeds ? stage.forward(tokens, k) : stage.forward(hidden, k);
  return stage.activation_bytes();
}

TEST(Plan, OperationsOfTheWorkbooksModelByHand) {
  // Weights of a layer's matrices: 4*288*288 + 3*288*1152 = 1,327,104; attention at T = 256 takes
  // scores and sums of 128 tokens: 2*288*128 = 73,728 multiplications.
  const LlamaConfig config;
  EXPECT_DOUBLE_EQ(layer_flops(config, 256), 2.0 * (1327104 + 73728));
  EXPECT_DOUBLE_EQ(head_flops(config), 2.0 * 4096 * 288);
  EXPECT_NEAR(head_flops(config) / layer_flops(config, 256), head_cost(config, 256), 1e-12);

  const StageSpan last{4, 6, false, true};
  const StageFlops flops = stage_flops(config, last, 256, false);
  EXPECT_DOUBLE_EQ(flops.forward, 2 * 2801664.0 + 2359296.0);
  EXPECT_DOUBLE_EQ(flops.backward, 2 * flops.forward);
  const StageFlops again = stage_flops(config, last, 256, true);
  EXPECT_DOUBLE_EQ(again.backward, 2 * flops.forward + 2 * 2801664.0) << "not the head again";
}

TEST(Plan, WeightsAreThoseOfTheStages) {
  for (const bool tied : {false, true})
    for (const int64_t kv_heads : {4, 2, 1}) {
      const LlamaConfig config = tiny(kv_heads, tied);
      for (const StageSpan& span : {StageSpan::whole(config),
                                    {0, 2, true, false},
                                    StageSpan{2, 4, false, false},
                                    {4, 5, false, true}}) {
        const LlamaStage stage(config, span, Device::kCpu, 1);
        EXPECT_EQ(parameter_count(config, span), stage.parameter_count());
      }
    }
}

TEST(Plan, ActivationsAreThoseOfTheStages) {
  for (const int64_t kv_heads : {4, 2, 1})
    for (const int microbatches : {1, 3}) {
      const LlamaConfig config = tiny(kv_heads, false);
      for (const StageSpan& span : {StageSpan::whole(config),
                                    {0, 2, true, false},
                                    StageSpan{2, 4, false, false},
                                    {4, 5, false, true}})
        for (const int64_t batch : {1, 2})
          EXPECT_EQ(static_cast<size_t>(4 * batch * 7 * microbatches *
                                        kept_per_token(config, span, false)),
                    held_bytes(config, span, microbatches, batch, 7));
    }
}

TEST(Plan, ActivationsOfTheWorkbooksModelAsItsPipelineHasThem) {
  // `./workbook bench pipeline`, 1F1B with 3 microbatches or more: 25.7, 17.1, 12.8 MB.
  const LlamaConfig config;
  const std::vector<double> expected = {25.7, 17.1, 12.8};
  const auto spans = balanced_spans(config, 3, 256);
  for (size_t s = 0; s < 3; ++s) {
    const int in_flight = most_in_flight(PassOrder::kOneFOneB, static_cast<int>(s), 3, 12);
    EXPECT_NEAR(
        1e-6 * 4 * 256 * in_flight * static_cast<double>(kept_per_token(config, spans[s], false)),
        expected[s], 0.05);
  }
}

TEST(Plan, RecomputingKeepsOnlyTheInputsOfLayers) {
  const LlamaConfig config = tiny(2, false);
  EXPECT_EQ(kept_per_token(config, {0, 3, true, false}, true), 4 * 24);
  EXPECT_EQ(kept_per_token(config, {3, 5, false, true}, true), 3 * 24 + 1 + 50);
  // The layer that is computed again: 2 + (24 + 2*12) + 24 + 4 + 24 + 2*40.
  EXPECT_EQ(scratch_per_token(config, true) - scratch_per_token(config, false), 182);
  EXPECT_EQ(scratch_per_token(config, false), 3 * 24 + 40 + 24 + 48);
}

TEST(Plan, StagesAreAsEqualAsLayersAllow) {
  const auto layers = [](const LlamaConfig& config, int stages) {
    std::vector<int64_t> counts;
    for (const StageSpan& span : balanced_spans(config, stages, config.context))
      counts.push_back(span.last_layer - span.first_layer);
    return counts;
  };
  LlamaConfig config;
  EXPECT_EQ(layers(config, 1), std::vector<int64_t>{6});
  EXPECT_EQ(layers(config, 3), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(layers(config, 6), (std::vector<int64_t>{1, 1, 1, 1, 1, 1}));
  config.vocab_size = 32000;  // the head costs more than six layers
  EXPECT_EQ(layers(config, 3), (std::vector<int64_t>{2, 3, 1}));
  EXPECT_TRUE(contains(error_of([&] { balanced_spans(config, 7, 256); }), "7 stages"));
}

TEST(Plan, MemoryByHand) {
  // Stage 1 of 3 of the workbook's model, m = 6, one sequence of 256 tokens a microbatch, 1F1B: two
  // layers, two microbatches in flight.
  const Training training;
  const Layout layout{2, 3, 6};
  const auto spans = balanced_spans(training.model, 3, 256);
  const double parameters = 2 * (1327104.0 + 2 * 288);
  const double kept = 2 * (2 + 3 * 288 + 288 + 6 + 288 + 2 * 1152) + 3 * 288;
  const double scratch = 3 * 288 + 1152 + 288 + 3 * 288;
  EXPECT_DOUBLE_EQ(stage_memory(training, layout, spans, 1),
                   16 * parameters + 256 * 4 * (2 * kept + scratch));
  Training gpipe = training;
  gpipe.order = PassOrder::kGpipe;
  EXPECT_DOUBLE_EQ(stage_memory(gpipe, layout, spans, 1),
                   16 * parameters + 256 * 4 * (6 * kept + scratch));
  Training mixed = training;
  mixed.precision = mixed_precision();
  EXPECT_DOUBLE_EQ(stage_memory(mixed, layout, spans, 1),
                   18 * parameters + 256 * 2 * (2 * kept + scratch));
}

TEST(Plan, PresetsHaveThePublishedSizes) {
  const auto billions = [](const char* name) {
    return 1e-9 * static_cast<double>(parameter_count(training_preset(name).model));
  };
  EXPECT_EQ(training_preset("workbook").model, LlamaConfig{});
  EXPECT_NEAR(billions("1b"), 1.10, 0.005);
  EXPECT_NEAR(billions("7b"), 6.74, 0.005);
  EXPECT_NEAR(billions("70b"), 68.98, 0.005);
  for (const char* name : {"workbook", "1b", "7b", "70b"})
    EXPECT_EQ(error_of([&] { training_preset(name).validate(); }), "");
  for (const char* name : {"a100", "h100"}) {
    const DevicePreset device = device_preset(name);
    EXPECT_GT(device.float32_flops, 0) << name;
    EXPECT_LT(device.float32_flops, 0.1 * device.device.flops) << "no tensor cores";
  }
  EXPECT_TRUE(contains(error_of([] { training_preset("8b"); }), "there is no model '8b'"));
  EXPECT_TRUE(contains(error_of([] { device_preset("tpu"); }), "there is no device 'tpu'"));
}

TEST(Plan, ShardsDivideWhatTheirStageSays) {
  const Training training = training_preset("workbook");
  const StageSpan whole = StageSpan::whole(training.model);
  const double all = 10'325'664;
  const double layer = 1'327'680;  // the largest part
  const auto bytes = [&](int ranks, int shard) {
    return parameter_memory(training, {.dp = ranks, .shard = shard}, whole);
  };
  EXPECT_EQ(bytes(1, 0), 16 * all);
  EXPECT_EQ(bytes(4, 0), 16 * all);
  EXPECT_EQ(bytes(4, 1), 8 * all + 8 * all / 4);
  EXPECT_EQ(bytes(4, 2), 4 * all + 12 * all / 4 + 4 * layer);
  EXPECT_EQ(bytes(4, 3), 16 * all / 4 + 4 * layer + 8 * layer);
  Training tied = training;
  tied.model.tied_head = true;
  const double fewer = all - 4096 * 288;
  EXPECT_EQ(parameter_memory(tied, {.dp = 4, .shard = 3}, whole), 16 * fewer / 4 + 20 * layer);
}

}  // namespace
}  // namespace lab::plan_test
