// Slices of a model: sizes, views, and initial values of the whole model.
#include "common/model/slice.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/model/llama_stage.h"
#include "common/model/weights.h"
#include "tests/unit/error_of.h"

namespace lab::slice_test {
namespace {

LlamaConfig small() {
  LlamaConfig config;
  config.vocab_size = 13;
  config.dim = 24;
  config.heads = 6;
  config.kv_heads = 6;
  config.layers = 2;
  config.hidden_dim = 30;
  config.context = 8;
  return config;
}

TEST(Slice, SizesOfASlice) {
  LlamaConfig config = small();
  config.kv_heads = 3;
  const LlamaConfig slice = slice_config(config, {.rank = 2, .ranks = 3});
  EXPECT_EQ(slice.heads, 2);
  EXPECT_EQ(slice.kv_heads, 1);
  EXPECT_EQ(slice.hidden_dim, 10);
  EXPECT_EQ(slice.head_dim(), config.head_dim());
  EXPECT_EQ(slice.dim, config.dim);
  EXPECT_EQ(slice_config(config, {}), config);
}

TEST(Slice, VocabulariesMayDifferByOne) {
  EXPECT_EQ(range_of(13, {.rank = 0, .ranks = 3}), (Range{0, 4}));
  EXPECT_EQ(range_of(13, {.rank = 1, .ranks = 3}), (Range{4, 8}));
  EXPECT_EQ(range_of(13, {.rank = 2, .ranks = 3}), (Range{8, 13}));
}

TEST(Slice, RefusesByName) {
  const auto refusal = [](LlamaConfig config, int ranks) {
    return error_of([&] { slice_config(config, {.rank = 0, .ranks = ranks}); });
  };
  EXPECT_EQ(refusal(small(), 4), "model: 6 heads cannot be divided equally among 4 ranks");
  LlamaConfig config = small();
  config.kv_heads = 2;
  EXPECT_EQ(refusal(config, 3), "model: 2 kv_heads cannot be divided equally among 3 ranks");
  config = small();
  config.hidden_dim = 31;
  EXPECT_EQ(refusal(config, 2),
            "model: 31 channels of hidden_dim cannot be divided equally among 2 ranks");
  config = small();
  config.vocab_size = 5;
  EXPECT_EQ(refusal(config, 6), "model: a vocabulary of 5 cannot be divided among 6 ranks");
}

/// The slices of every parameter, in the order of the ranks, are the whole one bit for bit.
TEST(Slice, WeightsAreSlicesOfTheWholeModels) {
  for (const bool tied : {false, true}) {
    LlamaConfig config = small();
    config.tied_head = tied;
    const Weights whole(config, StageSpan::whole(config), Device::kCpu, 7);
    for (const int ranks : {2, 3, 6})
      for (int rank = 0; rank < ranks; ++rank) {
        const TensorSlice slice{.rank = rank, .ranks = ranks};
        const Weights weights(config, StageSpan::whole(config), Device::kCpu, 7, slice);
        ASSERT_EQ(weights.named.size(), whole.named.size());
        for (size_t i = 0; i < whole.named.size(); ++i) {
          const Parameter& all = whole.named[i];
          EXPECT_EQ(weights.named[i].name, all.name);
          EXPECT_EQ(whole_shape(all.name, config), all.value.shape());
          const Tensor expected = slice_of(all.name, all.value, slice).clone();
          ASSERT_EQ(weights.named[i].value.shape(), expected.shape()) << all.name;
          EXPECT_TRUE(std::ranges::equal(weights.named[i].value.values(), expected.values()))
              << all.name << ", slice " << rank << " of " << ranks;
        }
      }
  }
}

TEST(Slice, EveryRankHasTheNormsAndNoMatrixTwice) {
  EXPECT_EQ(cut_of("model.layers.0.input_layernorm.weight"), Cut::kNone);
  EXPECT_EQ(cut_of("model.norm.weight"), Cut::kNone);
  EXPECT_EQ(cut_of("model.layers.3.self_attn.o_proj.weight"), Cut::kColumns);
  EXPECT_EQ(cut_of("exp_avg.model.layers.3.mlp.down_proj.weight"), Cut::kColumns);
  EXPECT_EQ(cut_of("lm_head.weight"), Cut::kRows);
}

}  // namespace
}  // namespace lab::slice_test
