// Tests of common/data/tokenizer.h: text comes back as it went in, and no file can crash it.
#include "common/data/tokenizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/io/files.h"
#include "common/io/utf8.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temp_folder.h"

namespace lab::tokenizer_test {
namespace {

namespace fs = std::filesystem;

const fs::path kShippedModel =
    fs::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "tokenizer.model";

class TokenizerTest : public testing::Test {
 protected:
  /// Loads a file with these bytes; the message of the Error, or "" if it loads. What loads must
  /// also encode and decode without a crash.
  std::string load_error(std::string_view bytes) const {
    const fs::path path = folder_ / "some.model";
    std::ofstream(path, std::ios::binary) << bytes;  // many times, so without a sync
    const std::string error = error_of([&] {
      const Tokenizer tokenizer(path);
      const std::vector<int32_t> tokens =
          tokenizer.encode("ab \u00E9 Once upon a time\n\u3300 \U0001F600 <s>");
      for (const int32_t token : tokens) {
        EXPECT_GE(token, 0);
        EXPECT_LT(token, tokenizer.vocab_size());
      }
      tokenizer.decode(tokens);
    });
    EXPECT_TRUE(error.empty() || contains(error, "some.model")) << error;
    return error;
  }

  TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

std::string random_text(std::mt19937_64& random, size_t characters) {
  std::string text;
  while (characters > 0) {
    // One, two, three or four bytes long, of any kind; surrogates and the sign for a space, which
    // sentencepiece cannot tell from one, are thrown away.
    std::string one;
    const size_t length = 1 + random() % 4;
    for (size_t i = 0; i < length; ++i) one += static_cast<char>(random());
    if (length == 1) one[0] = static_cast<char>(one[0] & 0x7F);
    if (length > 1) {
      constexpr unsigned char kFirst[] = {0xC0, 0xE0, 0xF0};
      constexpr unsigned char kMask[] = {0x1F, 0x0F, 0x07};
      one[0] = static_cast<char>((one[0] & kMask[length - 2]) | kFirst[length - 2]);
      for (size_t i = 1; i < length; ++i) one[i] = static_cast<char>((one[i] & 0x3F) | 0x80);
    }
    if (find_invalid_utf8(one) != one.size() || one == "\u2581") continue;
    text += one;
    --characters;
  }
  return text;
}

TEST_F(TokenizerTest, TextComesBackAsItWentIn) {
  const Tokenizer tokenizer(kShippedModel);
  EXPECT_EQ(tokenizer.vocab_size(), 4096);
  for (const std::string text :
       {"", "Once upon a time, there was a girl.", "line one\nline two\n\nparagraph\n",
        "  two  spaces  ", "\ttab", "\"Hi,\" said Tom's mum. 123!",
        "caf\u00E9 \u201Cquoted\u201D \U0001F600 \u65E5\u672C", "<s> </s> <unk> <0x0A>", "a"}) {
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    for (const int32_t token : tokens) {
      EXPECT_NE(token, tokenizer.bos());
      EXPECT_NE(token, tokenizer.eos());
    }
    EXPECT_EQ(tokenizer.decode(tokens), text);
  }
}

TEST_F(TokenizerTest, AnyCharacterComesBack) {
  const Tokenizer tokenizer(kShippedModel);
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::string text = random_text(random, 1 + random() % 40);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << testing::PrintToString(text);
  }
}

TEST_F(TokenizerTest, BosAndEosGiveNoText) {
  const Tokenizer tokenizer(kShippedModel);
  ASSERT_NE(tokenizer.bos(), tokenizer.eos());
  std::vector<int32_t> tokens = tokenizer.encode("The end.");
  tokens.insert(tokens.begin(), tokenizer.bos());
  tokens.push_back(tokenizer.eos());
  EXPECT_EQ(tokenizer.decode(tokens), "The end.");
}

TEST_F(TokenizerTest, EncodingInvalidUtf8IsAnError) {
  const Tokenizer tokenizer(kShippedModel);
  EXPECT_THROW(tokenizer.encode("caf\xE9"), Error);
}

TEST_F(TokenizerTest, TokensOutsideTheVocabularyAreErrors) {
  const Tokenizer tokenizer(kShippedModel);
  Tokenizer::Stream stream(tokenizer);
  for (const int32_t token :
       {-1, 4096, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{token}), Error) << token;
    EXPECT_THROW(stream.push(token), Error) << token;
  }
}

TEST_F(TokenizerTest, AStreamGivesTheTextPieceByPiece) {
  const Tokenizer tokenizer(kShippedModel);
  std::mt19937_64 random(2);
  for (int round = 0; round < 50; ++round) {
    const std::string text = "Once upon " + random_text(random, 20) + " a time.";
    Tokenizer::Stream stream(tokenizer);
    std::string streamed;
    for (const int32_t token : tokenizer.encode(text)) {
      const std::string added = stream.push(token);
      EXPECT_EQ(find_invalid_utf8(added), added.size()) << "half a character was printed";
      streamed += added;
    }
    EXPECT_EQ(streamed, text);
  }
}

TEST_F(TokenizerTest, AStreamHoldsBackUnfinishedCharactersOnly) {
  const Tokenizer tokenizer(kShippedModel);
  const std::vector<int32_t> tokens = tokenizer.encode("a\U0001F600");
  ASSERT_GE(tokens.size(), 5U) << "the character must be four byte pieces";
  Tokenizer::Stream stream(tokenizer);
  std::string before_last;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) before_last += stream.push(tokens[i]);
  EXPECT_EQ(before_last, "a");
  EXPECT_EQ(stream.push(tokens.back()), "\U0001F600");

  // The first byte of a character, followed by something else, will never be finished.
  Tokenizer::Stream broken(tokenizer);
  EXPECT_EQ(broken.push(tokens[tokens.size() - 4]), "");
  EXPECT_EQ(broken.push(tokenizer.encode("a").back()).substr(0, 3), "\uFFFD");
}

TEST_F(TokenizerTest, ThreadsMayShareOne) {
  const Tokenizer tokenizer(kShippedModel);
  const std::string text = "Lily and Tom went to the park. \u00E9\n";
  const std::vector<int32_t> expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(tokenizer.encode(text), expected);
        EXPECT_EQ(tokenizer.decode(expected), text);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TokenizerTest, ChecksumIsThatOfTheFile) {
  const Tokenizer tokenizer(kShippedModel);
  EXPECT_EQ(tokenizer.checksum(), checksum(MappedFile(kShippedModel).bytes()));
  EXPECT_EQ(tokenizer.path(), kShippedModel);
}

TEST_F(TokenizerTest, EveryTruncationIsAnError) {
  const MappedFile file(kShippedModel);
  const std::string_view model = file.text();
  for (size_t length = 0; length < model.size();) {
    ASSERT_NE(load_error(model.substr(0, length)), "") << "cut to " << length << " bytes";
    const bool near_an_end = length < 200 || length + 220 >= model.size();
    length = near_an_end ? length + 1 : std::min(length + 1499, model.size() - 220);
  }
}

TEST_F(TokenizerTest, ForeignFilesAreErrors) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 5000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_NE(load_error(bytes), "");
  }
  EXPECT_NE(load_error("Once upon a time there was a text file.\n"), "");
  EXPECT_NE(load_error("{\"model_type\": \"llama\"}"), "");
  EXPECT_NE(load_error(std::string(17 << 20, '\n')), "") << "too large";
}

TEST_F(TokenizerTest, FlippedBitsNeverCrash) {
  const std::string model(MappedFile(kShippedModel).text());
  std::mt19937_64 random(4);
  int errors = 0;
  for (int round = 0; round < 150; ++round) {
    std::string damaged = model;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips)
      damaged[random() % damaged.size()] ^= static_cast<char>(1U << random() % 8);
    errors += !load_error(damaged).empty();
  }
  EXPECT_GT(errors, 0) << "the test flips nothing that matters";
}

TEST_F(TokenizerTest, MissingFileIsNamed) {
  const std::string error = error_of([&] { Tokenizer tokenizer(folder_ / "missing.model"); });
  EXPECT_TRUE(contains(error, "missing.model")) << error;
  EXPECT_THROW(Tokenizer{folder_}, Error);
}

// Models written by hand, each wrong in one place. Numbers of fields and of types are those of
// sentencepiece_model.proto.

std::string field(int number, std::string_view bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t length = bytes.size();
  for (; length >= 128; length >>= 7) out += static_cast<char>(length | 0x80);
  out += static_cast<char>(length);
  return out.append(bytes);
}

constexpr char kNormal = 1;
constexpr char kUnknown = 2;
constexpr char kControl = 3;

std::string piece(std::string_view text, char type, float score = -1.0F) {
  std::string number(4, '\0');
  std::memcpy(number.data(), &score, 4);
  return field(1, field(1, text) + '\x15' + number + '\x18' + type);
}

std::string character_map(const std::vector<uint32_t>& trie, std::string_view texts) {
  std::string bytes;
  const auto add = [&bytes](uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift);
  };
  add(static_cast<uint32_t>(4 * trie.size()));
  for (const uint32_t unit : trie) add(unit);
  return bytes.append(texts);
}

/// A trie with the rule "a becomes texts[0...]" at unit 0x60, its value at unit 2.
std::vector<uint32_t> small_trie() {
  std::vector<uint32_t> units(256, 0x80000000U);
  units[0] = 1U << 10;
  units[0x60] = 0x62U << 10 | 0x100U | 'a';
  units[2] = 0x80000000U;
  return units;
}

std::string small_model(std::string_view pieces, std::string_view map = "") {
  return std::string(pieces) + field(2, "\x18\x01") + field(3, field(1, "by hand") + field(2, map));
}

const std::string kPieces = piece("<unk>", kUnknown) + piece("<s>", kControl) +
                            piece("</s>", kControl) + piece("a", kNormal) + piece("b", kNormal);

TEST_F(TokenizerTest, AModelWrittenByHandWorks) {
  ASSERT_EQ(load_error(small_model(kPieces)), "");
  const std::string texts("b\0", 2);
  ASSERT_EQ(load_error(small_model(kPieces, character_map(small_trie(), texts))), "");
  const Tokenizer tokenizer(folder_ / "some.model");
  EXPECT_EQ(tokenizer.vocab_size(), 5);
  EXPECT_EQ(tokenizer.encode("a").back(), 4) << "the rule makes it a b";
}

TEST_F(TokenizerTest, ModelsWithoutBosOrEosAreErrors) {
  const std::string others = piece("<unk>", kUnknown) + piece("a", kNormal);
  const std::string no_bos = load_error(small_model(others + piece("</s>", kControl)));
  EXPECT_NE(no_bos.find("BOS"), std::string::npos) << no_bos;
  const std::string no_eos = load_error(small_model(others + piece("<s>", kControl)));
  EXPECT_NE(no_eos.find("EOS"), std::string::npos) << no_eos;
}

TEST_F(TokenizerTest, OddPiecesAreErrors) {
  EXPECT_NE(load_error(small_model("")), "") << "no pieces";
  EXPECT_NE(load_error(small_model(kPieces + piece("a", kNormal))), "") << "twice the same";
  EXPECT_NE(load_error(small_model(kPieces + piece("", kNormal))), "") << "empty";
  EXPECT_NE(load_error(small_model(kPieces.substr(piece("<unk>", kUnknown).size()))), "");
  for (const float score :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_NE(load_error(small_model(kPieces + piece("c", kNormal, score))), "") << score;
  const std::string zero("c\0d", 3);
  load_error(small_model(kPieces + piece(zero, kNormal) + piece("c", kNormal)));  // must not crash
}

TEST_F(TokenizerTest, DamagedCharacterMapsAreErrors) {
  const std::string texts("b\0", 2);
  const auto error_with = [&](const std::vector<uint32_t>& trie) {
    return load_error(small_model(kPieces, character_map(trie, texts)));
  };
  std::vector<uint32_t> trie = small_trie();
  trie[0] = 0x1FFFU << 10;
  EXPECT_NE(error_with(trie), "") << "root points outside";
  trie = small_trie();
  trie[0x60] |= 0x200U;
  EXPECT_NE(error_with(trie), "") << "child points outside";
  trie = small_trie();
  trie[2] = 0x80000002U;
  EXPECT_NE(error_with(trie), "") << "value outside the texts";
  trie = small_trie();
  trie[0x60] = 0x61U << 10 | 'a';  // back to base 1, where 'a' leads here again
  EXPECT_NE(error_with(trie), "") << "a cycle";
  EXPECT_NE(error_with({}), "");
  EXPECT_NE(error_with({1, 2, 3}), "") << "shorter than a block of units";

  const std::string map = character_map(small_trie(), texts);
  for (const size_t length : {size_t{1}, size_t{3}, size_t{4}, size_t{500}, map.size() - 2})
    EXPECT_NE(load_error(small_model(kPieces, map.substr(0, length))), "") << length;
  EXPECT_NE(load_error(small_model(kPieces, map.substr(0, map.size() - 1))), "")
      << "no zero at end";
}

}  // namespace
}  // namespace lab::tokenizer_test
