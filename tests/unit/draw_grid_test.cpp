// Timelines as grids: what they look like, and that they fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/simulate.h"
#include "tests/unit/error_of.h"
#include "tests/unit/pipeline_plans.h"

namespace lab::draw_grid_test {
namespace {

// Without escape sequences.
std::string visible(const std::string& text) {
  std::string result;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') escape = true;
    if (!escape) result += c;
    if (c == 'm') escape = false;
  }
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// As if measured: in seconds, followed by an all-reduce and an update.
Timeline measured(int stages, int microbatches) {
  Timeline timeline =
      simulate(with_messages_beside(one_f_one_b_plan(stages, microbatches), true), {{1, 2, 0.3}});
  timeline.unit = "s";
  for (RankTimeline& rank : timeline.ranks) {
    for (Span& span : rank.spans) {
      span.start *= 0.00123;
      span.end *= 0.00123;
    }
    const double end = rank.spans.back().end;
    rank.spans.push_back({SpanKind::kCollective, -1, end, end * 1.1});
    rank.spans.push_back({SpanKind::kOptimizer, -1, end * 1.1, end * 1.2});
  }
  return timeline;
}

TEST(DrawGrid, GPipeAsInThePaper) {
  EXPECT_EQ(draw_grid(simulate(gpipe_plan(4, 4), {{1, 1, 0}})),
            "                                                     idle peak\n"
            "stage 0 |F0-F1-F2-F3-..................B0-B1-B2-B3-  43 %    4\n"
            "stage 1 |...F0-F1-F2-F3-............B0-B1-B2-B3-...  43 %    4\n"
            "stage 2 |......F0-F1-F2-F3-......B0-B1-B2-B3-......  43 %    4\n"
            "stage 3 |.........F0-F1-F2-F3-B0-B1-B2-B3-.........  43 %    4\n"
            "         0              5              10\n"
            "F forward   B backward   - goes on   . idle\n"
            "makespan 14; idle 42.9 % of all ranks' time\n"
            "peak: most microbatches in flight\n");
}

TEST(DrawGrid, OneForwardOneBackwardAsInThePaper) {
  EXPECT_EQ(draw_grid(simulate(one_f_one_b_plan(3, 6))),
            "                                                           idle peak\n"
            "stage 0 |F0F1F2........B0--F3B1--F4B2--F5B3--..B4--..B5--  25 %    3\n"
            "stage 1 |..F0F1....B0--F2B1--F3B2--F4B3--F5B4--..B5--....  25 %    2\n"
            "stage 2 |....F0B0--F1B1--F2B2--F3B3--F4B4--F5B5--........  25 %    1\n"
            "         0         5         10        15        20\n"
            "F forward   B backward   - goes on   . idle\n"
            "makespan 24; idle 25.0 % of all ranks' time\n"
            "peak: most microbatches in flight\n");
}

TEST(DrawGrid, LabelsCountMoreThanFiguresBesideTheRows) {
  const std::string grid = draw_grid(simulate(one_f_one_b_plan(3, 9)));
  EXPECT_TRUE(grid.starts_with("stage 0 |F0F1F2........B0--F3B1--")) << grid;
  EXPECT_TRUE(contains(grid, "stage 2: idle 18 %, peak 1")) << grid;
}

TEST(DrawGrid, CellsWithoutRoomForNumbersShowLetters) {
  const std::string grid = draw_grid(simulate(gpipe_plan(2, 12)));
  EXPECT_TRUE(contains(grid, "stage 0 |FFFFFFFFFFFF...B0B1B2B3B4B5B6B7B8B9BBBB  ")) << grid;
}

TEST(DrawGrid, WaitsAndOtherSpans) {
  Timeline timeline{"", std::vector<RankTimeline>(2)};
  timeline.ranks[0].name = "left";
  timeline.ranks[0].spans = {{SpanKind::kForward, 0, 0, 2},
                             {SpanKind::kSend, 0, 2, 3, 1},
                             {SpanKind::kRecv, 0, 4, 5, 1},
                             {SpanKind::kOptimizer, -1, 7, 8}};
  timeline.ranks[1].spans = {{SpanKind::kLoss, 0, 0, 1}, {SpanKind::kCollective, -1, 1, 7}};
  EXPECT_EQ(draw_grid(timeline, {.width = 60}),
            "                                  idle peak\n"
            "left   |F0----"
            ">>>"
            "..."
            "<<<"
            "......"
            "OOO"
            "  62 %    1\n"
            "rank 1 |L0-"
            "=================="
            "..."
            "  88 %    0\n"
            "        0              5\n"
            "F forward   L loss   O optimizer   > waits to send\n"
            "< waits to receive   = collective   - goes on   . idle\n"
            "makespan 8; idle 75.0 % of all ranks' time\n"
            "peak: most microbatches in flight\n");
}

TEST(DrawGrid, WithoutMicrobatchesNoPeak) {
  Timeline timeline{"", std::vector<RankTimeline>(1)};
  timeline.ranks[0].spans = {{SpanKind::kSend, -1, 0, 3, 0}, {SpanKind::kRecv, -1, 3, 4, 0}};
  EXPECT_EQ(draw_grid(timeline),
            "                      idle\n"
            "rank 0 |>>>>>>>>><<< 100 %\n"
            "        0\n"
            "> waits to send   < waits to receive\n"
            "makespan 4; idle 100.0 % of all ranks' time\n");
}

TEST(DrawGrid, MeasuredTimesAreScaledToTheWidth) {
  const Timeline timeline = measured(3, 6);
  const std::string grid = draw_grid(timeline, {.width = 80});
  const std::vector<std::string> lines = lines_of(grid);
  EXPECT_EQ(lines.at(1).size(), 80U) << grid;
  EXPECT_TRUE(contains(grid, "0 ms")) << grid;
  EXPECT_TRUE(contains(grid, fmt::format("makespan {:.1f} ms", 1e3 * makespan(timeline)))) << grid;
  EXPECT_TRUE(contains(lines.at(1), "OOO")) << grid;
}

// A column belongs to what fills most of it, in sum, and not to its longest span.
TEST(DrawGrid, NarrowColumnsShowWhatPrevails) {
  Timeline timeline{"s", std::vector<RankTimeline>(1)};
  for (int k = 0; k < 1000; ++k)  // each forward is followed by a shorter pause
    timeline.ranks[0].spans.push_back({SpanKind::kForward, k, static_cast<double>(k), k + 0.7});
  const std::string line = lines_of(draw_grid(timeline)).at(1);
  EXPECT_EQ(line.find('.'), std::string::npos) << line;
  for (Span& span : timeline.ranks[0].spans) span.end -= 0.4;  // now the pause is longer
  EXPECT_EQ(lines_of(draw_grid(timeline)).at(1).find('F'), std::string::npos);
}

TEST(DrawGrid, FitsEveryWidth) {
  std::vector<Timeline> timelines = {simulate(gpipe_plan(1, 1)),
                                     simulate(gpipe_plan(3, 6)),
                                     simulate(one_f_one_b_plan(16, 40)),
                                     measured(3, 6),
                                     measured(64, 3),
                                     measured(2, 200)};
  timelines.push_back(measured(2, 3));
  timelines.back().ranks[0].name = std::string(200, 'x');
  for (const Timeline& timeline : timelines)
    for (const bool color : {false, true})
      for (int width = 40; width < 200; width += 7) {
        const std::string grid = draw_grid(timeline, {.color = color, .width = width});
        const std::vector<std::string> lines = lines_of(visible(grid));
        EXPECT_GT(lines.size(), timeline.ranks.size() + 3);
        for (const std::string& line : lines)
          ASSERT_LE(line.size(), static_cast<size_t>(width)) << grid;
      }
}

TEST(DrawGrid, TinyWidthsDrawAsWellAsTheyCan) {
  for (const int width : {-5, 0, 1, 20})
    EXPECT_EQ(draw_grid(measured(3, 6), {.width = width}),
              draw_grid(measured(3, 6), {.width = 40}));
}

TEST(DrawGrid, PlainIsAscii) {
  Timeline timeline = measured(3, 6);
  timeline.ranks[1].name = "st\xc3\xa4ge\n\x1b[2J";
  for (const char c : draw_grid(timeline)) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
}

TEST(DrawGrid, ColourSaysTheSame) {
  const std::string grid = draw_grid(simulate(one_f_one_b_plan(3, 6)), {.color = true});
  const std::vector<std::string> lines = lines_of(visible(grid));
  EXPECT_EQ(lines.at(1), "stage 0 |0 1 2         0   3 1   4 2   5 3     4     5     25 %    3");
  EXPECT_EQ(lines.at(5), "   forward      backward");
  // Every line ends in the terminal's own colours.
  for (const std::string& line : lines_of(grid)) {
    const size_t last = line.rfind('\x1b');
    EXPECT_TRUE(last == std::string::npos || line.substr(last, 4) == "\x1b[0m") << grid;
  }
  const std::string forward = "\x1b[48;5;26;38;5;231m0 \x1b[0m";
  const std::string backward = "\x1b[48;5;22;38;5;231m0   \x1b[0m";
  EXPECT_TRUE(contains(grid, forward) && contains(grid, backward)) << grid;
}

TEST(DrawGrid, TimesHaveThreeDigits) {
  const auto grid = [](double end, const char* unit) {
    Timeline timeline{unit, std::vector<RankTimeline>(1)};
    timeline.ranks[0].spans = {{SpanKind::kForward, 0, 0, end}};
    return draw_grid(timeline);
  };
  EXPECT_TRUE(contains(grid(0.1234, "s"), "makespan 123 ms;"));
  EXPECT_TRUE(contains(grid(0.01234, "s"), "makespan 12.3 ms;"));
  EXPECT_TRUE(contains(grid(1.5, "s"), "makespan 1.50 s;"));
  EXPECT_TRUE(contains(grid(2345.6, "s"), "makespan 2346 s;"));
  EXPECT_TRUE(contains(grid(1.2e-5, "s"), "makespan 12.0 us;") ||
              contains(grid(1.2e-5, "s"), "makespan 12 us;"));
  EXPECT_TRUE(contains(grid(24, ""), "makespan 24;"));
  EXPECT_TRUE(contains(grid(0.00123, ""), "makespan 0.00123;"));
}

TEST(DrawGrid, NothingHappened) {
  EXPECT_EQ(draw_grid({}), "nothing to draw: the timeline is empty\n");
  EXPECT_EQ(draw_grid({"s", std::vector<RankTimeline>(3)}),
            "nothing to draw: the timeline is empty\n");
}

}  // namespace
}  // namespace lab::draw_grid_test
