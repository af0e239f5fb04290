// Tests of common/data/sorted_shard.h: the sequences of each rank if shards differ.
#include "common/data/sorted_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/data/tokenizer.h"
#include "common/io/files.h"
#include "tests/unit/temp_folder.h"

namespace lab::sorted_shard_test {
namespace {

namespace fs = std::filesystem;

using Indices = std::vector<int64_t>;

const fs::path kShippedModel =
    fs::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "tokenizer.model";

const std::vector<double> kKeys = {5, 1, 9, 1, 7, 3, 8, 2};

TEST(SortedShardTest, CutsTheSortedListIntoEqualBlocksInTheOrderOfTheEpoch) {
  const Indices order = {7, 6, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(sorted_shard(kKeys, 0, 3)(order), (Indices{3, 1}));  // keys 1 and 1
  EXPECT_EQ(sorted_shard(kKeys, 1, 3)(order), (Indices{7, 5}));  // 2 and 3
  EXPECT_EQ(sorted_shard(kKeys, 2, 3)(order), (Indices{4, 0}));  // 5 and 7; 8 and 9 are left out
}

TEST(SortedShardTest, EqualKeysGoByIndex) {
  const Indices order = {3, 1, 2, 0};
  EXPECT_EQ(sorted_shard(std::vector<double>(4), 0, 2)(order), (Indices{1, 0}));
  EXPECT_EQ(sorted_shard(std::vector<double>(4), 1, 2)(order), (Indices{3, 2}));
}

TEST(SortedShardTest, ShardsAreDisjointAndEquallyLongInEveryEpoch) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      Indices all;
      for (int rank = 0; rank < ranks; ++rank) {
        const Indices shard = sorted_shard(kKeys, rank, ranks)(epoch_order(8, 1, epoch));
        EXPECT_EQ(shard.size(), 8U / static_cast<size_t>(ranks));
        all.insert(all.end(), shard.begin(), shard.end());
      }
      std::ranges::sort(all);
      EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
    }
}

TEST(MeanTokensTest, CapitalsHaveLargerNumbersThanWords) {
  const TempFolder temporary;
  const fs::path& folder = temporary.path();
  std::string text;
  for (int i = 0; i < 20; ++i) text += "One day the little girl was happy.\n<|endoftext|>\n";
  for (int i = 0; i < 20; ++i) text += "ONE DAY THE LITTLE GIRL WAS HAPPY.\n<|endoftext|>\n";
  write_file(folder / "corpus.txt", text);
  const TokenDataset data(folder / "corpus.txt", Tokenizer(kShippedModel), folder / "cache");
  constexpr int64_t kLength = 16;
  const std::vector<double> means = mean_tokens(data, kLength);
  ASSERT_EQ(static_cast<int64_t>(means.size()), data.sequence_count(Split::kTrain, kLength));
  EXPECT_LT(2 * means.front(), means.back());

  const int64_t first = 0;
  double sum = 0;
  for (const int32_t token : data.batch(Split::kTrain, {&first, 1}, kLength).tokens) sum += token;
  EXPECT_DOUBLE_EQ(means.front(), sum / kLength);
}

}  // namespace
}  // namespace lab::sorted_shard_test
