// Tests of common/data/token_dataset.h: the tokens of a corpus, its splits, and its cache file.
#include "common/data/token_dataset.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/data/token_cache.h"
#include "common/error.h"
#include "common/io/files.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temp_folder.h"

namespace lab::token_dataset_test {
namespace {

namespace fs = std::filesystem;

const fs::path kShippedModel =
    fs::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "tokenizer.model";

class TokenDatasetTest : public testing::Test {
 protected:
  static std::string story(int number) {
    return fmt::format("Story {}.\nTom saw {} caf\u00E9s.", number, number * 7);
  }

  void write_corpus(int stories) const {
    std::string text;
    for (int i = 0; i < stories; ++i) text += story(i) + "\n<|endoftext|>\n";
    write_file(corpus_, text);
  }

  TokenDataset open() const { return TokenDataset(corpus_, tokenizer_, cache_); }

  /// All tokens of a split, read in sequences of `length`.
  static std::vector<int32_t> tokens(const TokenDataset& data, Split split, int64_t length = 1) {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < data.sequence_count(split, length); ++i) indices.push_back(i);
    return data.batch(split, indices, length).tokens;
  }

  std::vector<int32_t> expected(const std::vector<int>& stories) const {
    std::vector<int32_t> result;
    for (const int number : stories) {
      result.push_back(tokenizer_.bos());
      for (const int32_t token : tokenizer_.encode(story(number))) result.push_back(token);
      result.push_back(tokenizer_.eos());
    }
    return result;
  }

  std::vector<fs::path> cache_files() const {
    std::vector<fs::path> files;
    if (fs::exists(cache_))
      for (const auto& entry : fs::directory_iterator(cache_)) files.push_back(entry.path());
    return files;
  }

  Tokenizer tokenizer_{kShippedModel};
  TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
  const fs::path corpus_ = folder_ / "corpus.txt";
  const fs::path cache_ = folder_ / "cache";
};

TEST_F(TokenDatasetTest, TheLastTwentiethOfTheBytesIsHeldOut) {
  for (const int stories : {1, 2, 3, 45, 200}) {
    write_corpus(stories);
    const std::string text{MappedFile(corpus_).text()};
    std::vector<int> train;
    std::vector<int> held_out;
    size_t end = 0;
    for (int i = 0; i < stories; ++i) {
      end = text.find('\n', text.find("<|endoftext|>", end)) + 1;  // after the line of the marker
      const bool late = static_cast<double>(end) > 0.95 * static_cast<double>(text.size());
      (late && i > 0 ? held_out : train).push_back(i);
    }
    const TokenDataset data = open();
    EXPECT_EQ(data.story_count(Split::kTrain), static_cast<int64_t>(train.size()));
    EXPECT_EQ(data.story_count(Split::kValidation), static_cast<int64_t>(held_out.size()));
    EXPECT_EQ(held_out.empty(), stories == 1) << stories << " stories";
    EXPECT_EQ(tokens(data, Split::kTrain), expected(train)) << stories << " stories";
    EXPECT_EQ(tokens(data, Split::kValidation), expected(held_out)) << stories << " stories";
  }
}

TEST_F(TokenDatasetTest, SequencesAreCutFromTheStream) {
  write_corpus(30);
  const TokenDataset data = open();
  const std::vector<int32_t> stream = tokens(data, Split::kTrain);
  const int64_t count = data.sequence_count(Split::kTrain, 7);
  EXPECT_EQ(count, static_cast<int64_t>(stream.size()) / 7);
  const std::vector<int64_t> indices = {3, 0, count - 1, 3};
  const TokenBatch batch = data.batch(Split::kTrain, indices, 7);
  EXPECT_EQ(batch.batch, 4);
  EXPECT_EQ(batch.length, 7);
  EXPECT_EQ(batch.target_count(), 4 * 6);
  for (int64_t b = 0; b < 4; ++b)
    for (int64_t t = 0; t < 7; ++t)
      EXPECT_EQ(batch.row(b)[static_cast<size_t>(t)],
                stream[static_cast<size_t>(indices[static_cast<size_t>(b)] * 7 + t)]);
  EXPECT_TRUE(data.batch(Split::kTrain, {}, 7).tokens.empty());
}

TEST_F(TokenDatasetTest, OrderDoesNotDependOnThreadsOrBatches) {
  // More than one batch of text (1 MiB), stories of very unequal length.
  std::string text;
  std::vector<int32_t> stream;
  const std::string sentence = " The cat sat on the mat and was happy.";
  for (int i = 0; i < 90; ++i) {
    std::string one = fmt::format("Story {}.", i);
    for (int n = i % 3 == 0 ? 1000 : 1; n > 0; --n) one += sentence;
    text += one + "\n<|endoftext|>\n";
    stream.push_back(tokenizer_.bos());
    for (const int32_t token : tokenizer_.encode(one)) stream.push_back(token);
    stream.push_back(tokenizer_.eos());
  }
  write_file(corpus_, text);
  ASSERT_GT(text.size(), size_t{1} << 20);
  const TokenDataset data = open();
  std::vector<int32_t> all = tokens(data, Split::kTrain);
  const std::vector<int32_t> held_out = tokens(data, Split::kValidation);
  all.insert(all.end(), held_out.begin(), held_out.end());
  EXPECT_EQ(all, stream);
}

TEST_F(TokenDatasetTest, IndicesAndLengthsAreChecked) {
  write_corpus(30);
  const TokenDataset data = open();
  const int64_t count = data.sequence_count(Split::kTrain, 8);
  for (const int64_t index : {int64_t{-1}, count, int64_t{1} << 62})
    EXPECT_THROW(data.batch(Split::kTrain, std::vector<int64_t>{index}, 8), Error) << index;
  EXPECT_THROW(data.sequence_count(Split::kTrain, 0), Error);
  const std::string message = error_of([&] { data.sequence_count(Split::kTrain, 1 << 20); });
  EXPECT_NE(message.find("shorter context"), std::string::npos) << message;
  EXPECT_EQ(data.sequence_count(Split::kValidation, 1 << 20), 0);
}

TEST_F(TokenDatasetTest, TheCacheIsUsedAgain) {
  write_corpus(30);
  const uint64_t fingerprint = open().fingerprint();
  ASSERT_EQ(cache_files().size(), 1U);
  const auto time = fs::last_write_time(cache_files()[0]);
  const TokenDataset again = open();
  EXPECT_EQ(fs::last_write_time(cache_files()[0]), time);
  EXPECT_EQ(again.fingerprint(), fingerprint);
}

TEST_F(TokenDatasetTest, AChangedCorpusReplacesItsCache) {
  write_corpus(30);
  const uint64_t before = open().fingerprint();
  write_corpus(31);
  const TokenDataset longer = open();
  EXPECT_NE(longer.fingerprint(), before);
  EXPECT_EQ(longer.story_count(Split::kTrain) + longer.story_count(Split::kValidation), 31);
  EXPECT_EQ(cache_files().size(), 1U) << "the stale cache must not stay";

  // Same size, another time.
  std::string text(MappedFile(corpus_).text());
  text[6] = '9';
  write_file(corpus_, text);
  fs::last_write_time(corpus_, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_NE(open().fingerprint(), longer.fingerprint());
}

TEST_F(TokenDatasetTest, TheFingerprintIsThatOfTheContent) {
  write_corpus(30);
  const uint64_t here = open().fingerprint();
  const fs::path copy = folder_ / "elsewhere.txt";
  fs::copy_file(corpus_, copy);
  EXPECT_EQ(TokenDataset(copy, tokenizer_, cache_).fingerprint(), here);
  EXPECT_EQ(cache_files().size(), 2U);
}

TEST_F(TokenDatasetTest, DamagedCachesAreMadeAnew) {
  write_corpus(30);
  const std::vector<int32_t> stream = tokens(open(), Split::kTrain);
  const fs::path path = cache_files().at(0);
  const std::string whole(MappedFile(path).text());
  std::vector<std::string> damaged = {"", "x", whole + "x", std::string(whole.size(), '\0')};
  for (size_t length = 1; length < whole.size(); length += 149)
    damaged.push_back(whole.substr(0, length));
  for (size_t at = 0; at < sizeof(CacheHeader); at += 9) {
    damaged.push_back(whole);
    damaged.back()[at] ^= 0x10;
  }
  testing::internal::CaptureStderr();
  for (const std::string& bytes : damaged) {
    std::ofstream(path, std::ios::binary) << bytes;
    ASSERT_EQ(tokens(open(), Split::kTrain), stream);
    ASSERT_EQ(MappedFile(path).text(), whole);
  }
  const std::string notes = testing::internal::GetCapturedStderr();
  EXPECT_NE(notes.find("damaged"), std::string::npos) << notes;
}

TEST_F(TokenDatasetTest, ATokenOutsideTheVocabularyIsAnError) {
  write_corpus(30);
  open();
  const fs::path path = cache_files().at(0);
  std::string bytes(MappedFile(path).text());
  bytes[sizeof(CacheHeader) + 2 * 3 + 1] = '\xF0';  // the fourth token
  write_file(path, bytes);
  const TokenDataset data = open();
  const std::string message =
      error_of([&] { data.batch(Split::kTrain, std::vector<int64_t>{0}, 8); });
  EXPECT_NE(message.find(path.string()), std::string::npos) << message;
  EXPECT_NE(message.find("delete"), std::string::npos) << message;
}

TEST_F(TokenDatasetTest, BuildingAtTheSameTimeSucceeds) {
  write_corpus(500);
  std::vector<uint64_t> fingerprints(3);
  std::vector<std::thread> threads;
  for (uint64_t& fingerprint : fingerprints)
    threads.emplace_back([this, &fingerprint] { fingerprint = open().fingerprint(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(fingerprints[0], 0U);
  EXPECT_EQ(fingerprints[0], fingerprints[1]);
  EXPECT_EQ(fingerprints[0], fingerprints[2]);
  EXPECT_EQ(cache_files().size(), 1U) << "temporary files were left behind";
}

TEST_F(TokenDatasetTest, BadCorporaAreErrorsAndLeaveNoCache) {
  const auto message = [this](std::string_view text) {
    write_file(corpus_, text);
    return error_of([this] { open(); });
  };
  EXPECT_NE(message("").find("empty"), std::string::npos);
  EXPECT_NE(message("\n<|endoftext|>\n \n").find("no story"), std::string::npos);
  EXPECT_NE(message("fine\n<|endoftext|>\ncaf\xE9 \n").find("line 3"), std::string::npos);
  EXPECT_NE(message("fine\n<|endoftext|>\ncaf\xC3").find("truncated"), std::string::npos);
  EXPECT_TRUE(cache_files().empty());
  EXPECT_EQ(message("fine\n<|endoftext|>\ncut in the mid"), "");

  fs::remove(corpus_);
  const std::string missing = error_of([this] { open(); });
  EXPECT_NE(missing.find(corpus_.string()), std::string::npos) << missing;
}

TEST_F(TokenDatasetTest, AnImpossibleCacheFolderIsNamed) {
  write_corpus(30);
  write_file(cache_, "a file where the folder should be");
  const std::string message = error_of([this] { open(); });
  EXPECT_NE(message.find(cache_.string()), std::string::npos) << message;
}

}  // namespace
}  // namespace lab::token_dataset_test
