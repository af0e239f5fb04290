// Timelines as SVG figures.
#include <gtest/gtest.h>

#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/simulate.h"
#include "tests/unit/error_of.h"
#include "tests/unit/markup.h"
#include "tests/unit/pipeline_plans.h"

namespace lab::draw_svg_test {
namespace {

double width_of(const std::string& svg) { return std::stod(svg.substr(svg.find("width=\"") + 7)); }

TEST(DrawSvg, ShowsEveryMicrobatchOfEveryStage) {
  for (const int microbatches : {1, 6, 24, 120}) {
    const std::string svg = draw_svg(simulate(one_f_one_b_plan(3, microbatches)), "1F1B");
    EXPECT_EQ(first_fault(svg), "");
    for (int k = 0; k < microbatches; ++k) {
      // Forward and backward on three stages, the number readable on each.
      EXPECT_EQ(count(svg, fmt::format("class=\"n\">{}</text>", k)), 6U) << k;
      EXPECT_EQ(count(svg, fmt::format("<title>F{}: ", k)), 3U);
      EXPECT_EQ(count(svg, fmt::format("<title>B{}: ", k)), 3U);
    }
  }
}

TEST(DrawSvg, GrowsWithTheNumberOfPasses) {
  const double narrow = width_of(draw_svg(simulate(one_f_one_b_plan(3, 6))));
  const double wide = width_of(draw_svg(simulate(one_f_one_b_plan(3, 120))));
  EXPECT_GT(narrow, 600);
  EXPECT_LT(narrow, 1000);
  EXPECT_GT(wide, 3000);
}

TEST(DrawSvg, ExtremeTimesDoNotMakeItEndless) {
  Timeline timeline{"s", std::vector<RankTimeline>(1)};
  timeline.ranks[0].spans = {{SpanKind::kForward, 0, 0, 1e-9}, {SpanKind::kBackward, 0, 5, 1e6}};
  const std::string svg = draw_svg(timeline);
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_LT(width_of(svg), 30000);
  EXPECT_EQ(count(svg, "<title>F0: "), 1U);
}

TEST(DrawSvg, SaysTheFiguresAndWhatOccurs) {
  const std::string svg = draw_svg(simulate(one_f_one_b_plan(3, 6)));
  EXPECT_TRUE(contains(svg, "makespan 24, idle 25.0 %"));
  EXPECT_EQ(count(svg, ">25 %<"), 3U);
  EXPECT_TRUE(contains(svg, ">forward<") && contains(svg, ">backward<"));
  EXPECT_FALSE(contains(svg, "optimizer<"));
  EXPECT_TRUE(contains(svg, "prefers-color-scheme:dark"));
}

TEST(DrawSvg, TitlesAndNamesAreText) {
  Timeline timeline = simulate(gpipe_plan(2, 1));
  timeline.ranks[0].name = "<script>&\"";
  const std::string svg = draw_svg(timeline, "a < b & c > d");
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_TRUE(contains(svg, "a &lt; b &amp; c &gt; d"));
  EXPECT_TRUE(contains(svg, "&lt;script&gt;&amp;"));
  EXPECT_FALSE(contains(svg, "<script"));
}

TEST(DrawSvg, NothingHappened) {
  EXPECT_EQ(first_fault(draw_svg({})), "");
  const std::string svg = draw_svg({"s", std::vector<RankTimeline>(2)});
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_TRUE(contains(svg, "rank 1"));
  EXPECT_FALSE(contains(svg, "nan"));
}

}  // namespace
}  // namespace lab::draw_svg_test
