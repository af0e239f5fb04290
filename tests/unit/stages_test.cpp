// What a stage of a pipeline shares with the others: the last one's number, and a checkpoint of the
// whole model.
#include <gtest/gtest.h>

#include <memory>
#include <numbers>

#include "common/comm/agreement.h"
#include "common/model/split.h"
#include "common/run/checkpoint/checkpoint.h"
#include "common/run/checkpoint/checkpoint_folder.h"
#include "common/run/checkpoint/saved_tensors.h"
#include "tests/unit/numeric.h"
#include "tests/unit/simulated_job.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_training.h"

namespace lab::stages_test {
namespace {

constexpr uint64_t kSeed = 3;

LlamaConfig three_layers() {
  LlamaConfig config = tiny_config();
  config.layers = 3;
  return config;
}

/// The stage of one of three ranks, or the whole model.
LlamaStage stage_of(int rank, int ranks) {
  const LlamaConfig config = three_layers();
  if (ranks == 1) return {config, StageSpan::whole(config), Device::kCpu, kSeed};
  return {config, spans_of(config, {1, 1, 1})[static_cast<size_t>(rank)], Device::kCpu, kSeed};
}

TEST(Stages, TheLastStagesNumberArrivesWhole) {
  const auto report = simulate({.ranks = 3}, [](ProcessGroup& pipeline) {
    const double own = pipeline.rank() == 2 ? std::numbers::pi : 1.0;
    EXPECT_EQ(from_last_stage(own, pipeline), std::numbers::pi);
  });
  EXPECT_TRUE(report.succeeded()) << explain(report);
}

/// Adam with moments that depend on the parameters only.
std::unique_ptr<Adam> adam_of(const LlamaStage& stage) {
  auto adam = std::make_unique<Adam>(stage.parameters().numel(), AdamConfig{}, lab01::adam_update);
  for (const auto& [name, state] : adam->state())
    for (int64_t i = 0; i < state.numel(); ++i)
      state.data()[i] = stage.parameters().data()[i] * (name == "exp_avg" ? 0.5F : 0.25F);
  return adam;
}

TEST(Stages, AStageLoadsItsPartOfACheckpoint) {
  const TempFolder folder;
  const LlamaStage whole = stage_of(0, 1);
  TrainingState state;
  state.step = 1;
  const auto checkpoint =
      save_checkpoint(folder.path(), state, whole.config(), saved_tensors(whole, *adam_of(whole)),
                      {.file = "tokenizer", .bos = 1, .eos = 2});
  for (int rank = 0; rank < 3; ++rank) {
    LlamaStage stage = stage_of(rank, 3);
    const auto adam = adam_of(stage);
    stage.parameters().fill(0.0F);
    for (const auto& [name, tensor] : adam->state()) tensor.fill(0.0F);
    load_for_training(checkpoint, stage, *adam);
    const LlamaStage expected = stage_of(rank, 3);
    EXPECT_TRUE(test::same_bits(stage.parameters(), expected.parameters()));
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(test::same_bits(adam->state()[i].value, adam_of(expected)->state()[i].value));
  }
}

}  // namespace
}  // namespace lab::stages_test
