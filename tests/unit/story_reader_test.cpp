// Tests of common/data/story_reader.h and utf8.h: all shapes of corpus files, good and bad.
#include "common/data/story_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/io/utf8.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temp_folder.h"

namespace lab::story_reader_test {
namespace {

namespace fs = std::filesystem;
using Stories = std::vector<std::string>;

class StoryReaderTest : public testing::Test {
 protected:
  Stories read(std::string_view text) const {
    const fs::path corpus = folder_ / "corpus.txt";
    std::ofstream(corpus, std::ios::binary) << text;
    StoryReader reader(corpus);
    EXPECT_EQ(reader.size(), static_cast<int64_t>(text.size()));
    Stories stories;
    std::string story;
    while (reader.next(story)) stories.push_back(story);
    EXPECT_FALSE(reader.next(story)) << "the end must stay the end";
    EXPECT_EQ(reader.position(), reader.size());
    return stories;
  }

  /// The message of the Error that reading `text` gives; empty if it gives none.
  std::string error_in(std::string_view text) const {
    return error_of([&] { read(text); });
  }

  TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(StoryReaderTest, StoriesAreClosedByMarkers) {
  EXPECT_EQ(read("One.\nTwo lines.\n<|endoftext|>\nSecond.\n<|endoftext|>\n"),
            (Stories{"One.\nTwo lines.", "Second."}));
}

TEST_F(StoryReaderTest, ParagraphsAreKept) {
  EXPECT_EQ(read("\n\n One.\n\n  Two. \n\n<|endoftext|>"), (Stories{"One.\n\n  Two."}));
}

TEST_F(StoryReaderTest, MarkerAnywhereInALine) {
  EXPECT_EQ(read("A.<|endoftext|>\nB.\n  <|endoftext|>  \nC.<|endoftext|>D.<|endoftext|>E."),
            (Stories{"A.", "B.", "C.", "D.", "E."}));
}

TEST_F(StoryReaderTest, EmptyStoriesAreSkipped) {
  EXPECT_EQ(read("<|endoftext|>\n\n<|endoftext|>\nA.\n<|endoftext|><|endoftext|>\n \t\n"),
            (Stories{"A."}));
  EXPECT_EQ(read(""), Stories{});
  EXPECT_EQ(read("\n \n<|endoftext|>\n"), Stories{});
}

TEST_F(StoryReaderTest, LastStoryMayLackItsMarker) {
  EXPECT_EQ(read("A.\n<|endoftext|>\nB"), (Stories{"A.", "B"}));
  EXPECT_EQ(read("A.\n<|endoftext|>\nB.\n<|endofte"), (Stories{"A.", "B.\n<|endofte"}));
}

TEST_F(StoryReaderTest, WindowsLineEnds) {
  EXPECT_EQ(read("A.\r\nB.\r\n<|endoftext|>\r\nC.\r\n"), (Stories{"A.\nB.", "C."}));
}

TEST_F(StoryReaderTest, ByteOrderMarkIsSkippedAtTheStartOnly) {
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "A.\n<|endoftext|>\n\xEF\xBB\xBF"
                 "B."),
            (Stories{"A.",
                     "\xEF\xBB\xBF"
                     "B."}));
}

TEST_F(StoryReaderTest, LinesMarkersAndCharactersAcrossBlocks) {
  // Files are read in blocks of 8 KiB: put what follows at every position around the edge of one.
  const std::string tail = "\u20AC\U0001F600\r\n<|endoftext|>\nnext \u00E9\n<|endoftext|>\n";
  for (size_t before = (size_t{8} << 10) - tail.size(); before <= size_t{8} << 10; ++before) {
    const std::string first = std::string(before / 2, 'x') + "\n" + std::string(before / 2, 'y');
    ASSERT_EQ(read(first + tail), (Stories{first + "\u20AC\U0001F600", "next \u00E9"}))
        << "with " << before << " bytes before";
  }
}

TEST_F(StoryReaderTest, ManyStoriesOverManyBlocks) {
  std::string text;
  Stories expected;
  for (int i = 0; i < 20000; ++i) {
    expected.push_back(
        fmt::format("Story {}.\n{}", i, std::string(static_cast<size_t>(i % 300), 'z')));
    if (i % 300 == 0) expected.back().pop_back();  // the line end of an empty second line
    text += expected.back() + "\n<|endoftext|>\n";
  }
  EXPECT_EQ(read(text), expected);
}

TEST_F(StoryReaderTest, InvalidTextNamesTheLine) {
  for (const std::string bad : {"\xFF", "\x80", "\xC0\xAF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                                "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xE2\x82", "\xC3"}) {
    const std::string message = error_in("fine\nfine\nab" + bad + "\nfine\n<|endoftext|>\n");
    EXPECT_NE(message.find("line 3"), std::string::npos) << message;
    EXPECT_NE(message.find("byte 3"), std::string::npos) << message;
    EXPECT_NE(message.find("corpus.txt"), std::string::npos) << message;
  }
  EXPECT_NE(error_in(std::string("fine\nU\0T\0F\0", 11)).find("line 2"), std::string::npos);
}

TEST_F(StoryReaderTest, TruncationInsideACharacterIsSaid) {
  const std::string text = "fine\n\U0001F600";
  EXPECT_EQ(error_in(text), "");
  for (size_t cut = 1; cut < 4; ++cut) {
    const std::string message = error_in(text.substr(0, text.size() - cut));
    EXPECT_NE(message.find("middle of a character"), std::string::npos) << message;
    EXPECT_NE(message.find("line 2"), std::string::npos) << message;
  }
}

TEST_F(StoryReaderTest, AFileWithoutMarkersIsNotReadIntoMemory) {
  std::string two_lines(5 << 20, 'x');
  two_lines[2 << 20] = '\n';
  const std::string lines = error_in(two_lines);
  EXPECT_NE(lines.find("4 MiB"), std::string::npos) << lines;
  const std::string one_line = error_in(std::string(6 << 20, 'x'));
  EXPECT_NE(one_line.find("4 MiB"), std::string::npos) << one_line;
  EXPECT_EQ(error_in(std::string(4 << 20, 'x')), "") << "exactly the limit";
  EXPECT_EQ(error_in(std::string(4 << 20, 'x') + "<|endoftext|>\n"), "") << "with its marker";
}

TEST_F(StoryReaderTest, MissingFileAndFolderAreNamed) {
  for (const fs::path& path : {folder_ / "missing", folder_}) {
    const std::string error = error_of([&] { StoryReader reader(path); });
    EXPECT_TRUE(contains(error, path.string())) << path << ": " << error;
  }
}

TEST(Utf8Test, EveryCodePointIsValidAndEverySurrogateIsNot) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    std::string text;
    const auto add = [&text](uint32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xC0 | code >> 6), add(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      add(0xE0 | code >> 12), add(0x80 | (code >> 6 & 0x3F)), add(0x80 | (code & 0x3F));
    } else {
      add(0xF0 | code >> 18), add(0x80 | (code >> 12 & 0x3F)), add(0x80 | (code >> 6 & 0x3F)),
          add(0x80 | (code & 0x3F));
    }
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(find_invalid_utf8(text) == text.size(), !surrogate) << std::hex << code;
    if (!surrogate && text.size() > 1) {
      ASSERT_TRUE(is_unfinished_utf8(std::string_view(text).substr(0, text.size() - 1)));
      ASSERT_EQ(find_invalid_utf8(text.substr(0, text.size() - 1)), 0U);
      ASSERT_EQ(find_invalid_utf8(text.substr(1)), 0U) << "starts in the middle";
    }
  }
}

TEST(Utf8Test, FindsTheFirstBadByteWhereverItIs) {
  for (size_t at = 0; at < 40; ++at) {
    std::string text = std::string(at, 'a') + "\xFF" + "\u20AC" + std::string(20, 'b');
    EXPECT_EQ(find_invalid_utf8(text), at);
  }
  EXPECT_FALSE(is_unfinished_utf8(""));
  EXPECT_FALSE(is_unfinished_utf8("\u20AC"));
  EXPECT_FALSE(is_unfinished_utf8("\xE2\x28")) << "cannot become a character";
}

}  // namespace
}  // namespace lab::story_reader_test
