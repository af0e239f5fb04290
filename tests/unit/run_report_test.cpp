// The report of a run, as a page and as what it says.
#include "common/run/report/run_report.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/run/timeline/network_report.h"
#include "tests/unit/error_of.h"
#include "tests/unit/example_report.h"
#include "tests/unit/markup.h"

namespace lab::run_report_test {
namespace {

// Nothing that a browser would fetch or run.
void expect_self_contained(const std::string& html) {
  for (const char* reference : {"http", "src=", "href", "url(", "@import", "<script", "<link",
                                "<iframe", "<object", " onload", " onclick"})
    EXPECT_FALSE(contains(html, reference)) << reference;
}

TEST(RunReport, IsOnePageThatNeedsNothingElse) {
  const std::string html = report_html(example_report());
  EXPECT_EQ(first_fault(html), "");
  expect_self_contained(html);
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(contains(html, "<meta charset=\"utf-8\"/>"));
  EXPECT_TRUE(contains(html, "name=\"viewport\""));
  EXPECT_TRUE(contains(html, "prefers-color-scheme:dark"));
  EXPECT_TRUE(contains(html, "@media print"));
  EXPECT_FALSE(contains(html, " id=")) << "no names that could clash";
}

TEST(RunReport, ShowsTheNumbersItIsGiven) {
  RunReport report = example_report();
  report.metrics.back() = {.step = 700,
                           .loss = 1.23456,
                           .val_loss = 1.34567,
                           .tokens_per_second = 5,
                           .learning_rate = 1e-4,
                           .seconds = 3725};
  for (StepRecord& record : report.metrics) record.tokens_per_second = 12345;
  const std::string html = report_html(report);
  EXPECT_TRUE(contains(html, "<dt>training loss</dt><dd>1.235<small>step 700</small>"));
  EXPECT_TRUE(contains(html, "<dt>validation loss</dt><dd>1.346<small>step 700</small>"));
  EXPECT_TRUE(contains(html, "<dt>speed</dt><dd>12,345<small>"));
  EXPECT_TRUE(contains(html, "<dt>time</dt><dd>1 h 2 min<small>for 700 steps</small>"));
  EXPECT_TRUE(contains(html, "<title>step 700: 1.3457</title>"));
  EXPECT_TRUE(contains(html, "<dt>width</dt><dd>288</dd>"));
  EXPECT_TRUE(contains(html, "Believe the order, not the speed."));
  EXPECT_TRUE(contains(html, "after step 300</h3><p>Once upon a time, there was a little boy"));
}

TEST(RunReport, ShowsTheStepOfEveryRankBesideTheory) {
  const RunReport report = example_report();
  const StepTimeline& step = *report.timing;
  const std::string html = report_html(report);
  for (int k = 0; k < 6; ++k) {
    EXPECT_EQ(count(html, fmt::format("<title>F{}: ", k)), 6U) << k;
    EXPECT_EQ(count(html, fmt::format("<title>B{}: ", k)), 6U) << k;
    EXPECT_EQ(count(html, fmt::format("<title>in theory F{}: ", k)), 6U) << k;
    EXPECT_EQ(count(html, fmt::format("17.5\">{}</text>", k)), 12U) << "can be read: " << k;
  }
  for (const double idle :
       {idle_share(step.measured), idle_share(step.theory), step.ideal_idle_share})
    EXPECT_TRUE(contains(html, fmt::format("<td>{:.1f} %</td>", 100 * idle))) << idle;
  for (const RankShare& share : rank_shares(step.measured))
    EXPECT_TRUE(contains(html, fmt::format("<td>{:.1f} %</td><td>{:.1f} %</td><td>{:.1f} %</td>"
                                           "<td>{:.1f} %</td>",
                                           100 * share.compute, 100 * share.communication,
                                           100 * share.waiting, 100 * share.other)));
}

TEST(RunReport, ShowsWhatTravelsMeanwhile) {
  RunReport report = example_report();
  EXPECT_FALSE(contains(report_html(report), "on its way: "));
  RankTimeline& rank = report.timing->measured.ranks[2];
  for (int bucket = 0; bucket < 3; ++bucket)
    rank.messages.push_back({.kind = SpanKind::kCollective,
                             .microbatch = bucket,
                             .start = 0.1 + 0.01 * bucket,
                             .end = 0.11 + 0.01 * bucket,
                             .bytes = kGradientBytes,
                             .collective = OpKind::kAllReduce,
                             .members = 0b100100});
  const std::string html = report_html(report);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_EQ(count(html, "<title>on its way: "), 3U);
  EXPECT_EQ(count(html, "<rect class=\"communication odd\""), 1U);
  EXPECT_TRUE(contains(html, "travelled meanwhile"));
  EXPECT_EQ(with_network_rows(report.timing->measured).rank_count(), 12);
  EXPECT_EQ(with_network_rows(example_report().timing->measured).rank_count(), 6);
}

TEST(RunReport, TheoryBeginsWithTheFirstMeasuredPass) {
  const RunReport report = example_report();  // whose first pass begins at 4 ms
  const std::string html = report_html(report);
  const std::string place =
      fmt::format(" x=\"{:.3f}%\"", 100 * 0.004 / makespan(report.timing->measured));
  EXPECT_EQ(count(html, "<rect class=\"forward\"" + place), 4U)
      << "two pipelines, and their theory";
  EXPECT_EQ(count(html, "<title>F0: 4 ms to "), 2U);
  EXPECT_EQ(count(html, "<title>in theory F0: 4 ms to "), 2U);
}

TEST(RunReport, ShowsTheBytesOfEveryLink) {
  const std::string html = report_html(example_report());
  EXPECT_EQ(count(html, ">11.0 MB<"), 6U) << "2 (n-1)/n of the gradients, from each rank";
  EXPECT_EQ(count(html, ">5.31 MB<"), 8U) << "six activations or gradients";
  EXPECT_TRUE(contains(html, "rank 0 to rank 1: 6 messages, 5.31 MB\""));
  EXPECT_TRUE(contains(html, "rank 0 to rank 3: 1 collective, 11.0 MB\""));
  EXPECT_TRUE(contains(html, "42.5 MB in 48. "));
}

TEST(RunReport, ManyRanksMakeAListOfTheirBusiestLinks) {
  RunReport report{.metrics = example_metrics(3)};
  const Timeline ranks{"s", std::vector<RankTimeline>(64)};
  report.timing = StepTimeline{.measured = ranks, .theory = ranks};
  for (int rank = 0; rank < 64; ++rank)
    report.timing->measured.ranks[static_cast<size_t>(rank)].messages = {
        {SpanKind::kSend, 0, 0, 1, (rank + 1) % 64, static_cast<uint64_t>(100 + rank)}};
  const std::string html = report_html(report);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_TRUE(contains(html, "<th scope=\"row\">63 → 0</th><td>163 B</td>"));
  EXPECT_EQ(count(html, " → "), 40U);
  EXPECT_TRUE(contains(html, "The 40 busiest of 64 links."));
}

TEST(RunReport, SaysWhoseLabsTrained) {
  const auto page = [](const char* whose) {
    return report_html({.title = "run", .whose_labs = whose});
  };
  EXPECT_TRUE(contains(page("mine"), "Trained by your code"));
  EXPECT_TRUE(contains(page("student"), "Trained by your lab 06"));
  EXPECT_TRUE(contains(page("solution"), "Trained by the reference solutions"));
  EXPECT_FALSE(contains(page("?"), "Trained by"));
}

TEST(RunReport, LeavesOutWhatThereIsNotAndNeverFails) {
  const std::string empty = report_html({});
  EXPECT_EQ(first_fault(empty), "");
  EXPECT_TRUE(contains(empty, "No step has been recorded"));
  EXPECT_EQ(count(empty, "<section>"), 1U);

  RunReport one{.title = "one process", .metrics = example_metrics(3)};
  for (StepRecord& record : one.metrics) record.val_loss.reset();
  const std::string html = report_html(one);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_TRUE(contains(html, "No validation loss has been measured"));
  EXPECT_FALSE(contains(html, "<dt>validation loss"));
  for (const char* heading : {"What it wrote", "One step", "Bytes by link", "Configuration"})
    EXPECT_FALSE(contains(html, heading)) << heading;
}

TEST(RunReport, AStepOfOneProcessHasNoLinks) {
  RunReport report{.metrics = example_metrics(3)};
  Timeline one{"s", std::vector<RankTimeline>(1)};
  one.ranks[0].spans = {{SpanKind::kForward, 0, 0, 1}, {SpanKind::kBackward, 0, 1, 3}};
  report.timing = StepTimeline{.measured = one, .theory = one};
  const std::string html = report_html(report);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_TRUE(contains(html, "One step, as measured"));
  EXPECT_TRUE(contains(html, "<td>100.0 %</td><td>0.0 %</td>"));
  for (const char* absent : {"Bytes by link", "waiting for another rank"})
    EXPECT_FALSE(contains(html, absent)) << absent;
}

TEST(RunReport, EveryTextIsText) {
  const std::string bad = "<b>&\"'</p><script>\x01\xFF\xEF\xBF\xBF\n";
  RunReport report = example_report(10);
  report.title = report.subtitle = bad;
  report.facts = {{bad, {{bad, bad}}}};
  report.samples = {{1, bad}};
  report.notes = {bad};
  report.timing->measured.ranks[0].name = bad;
  const std::string html = report_html(report);
  EXPECT_EQ(first_fault(html), "");
  expect_self_contained(html);
  EXPECT_EQ(count(html, "&lt;b&gt;&amp;&quot;'&lt;/p&gt;&lt;script&gt;"), 11U);
  EXPECT_EQ(html.find_first_of("\x01\xFF"), std::string::npos);
}

TEST(RunReport, NumbersThatAreNoneDoNotReachTheCurves) {
  RunReport report{.title = "diverged", .metrics = example_metrics(5)};
  report.metrics[2].loss = std::numeric_limits<double>::quiet_NaN();
  report.metrics[3].tokens_per_second = std::numeric_limits<double>::infinity();
  const std::string html = report_html(report);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_FALSE(contains(html, "nan"));
  EXPECT_FALSE(contains(html, "inf,") || contains(html, ",inf"));
}

TEST(RunReport, OfALongRunStaysSmall) {
  RunReport report = example_report(100'000, 400);
  for (int64_t step = 1; step <= 1000; ++step)
    report.samples.push_back({700 + step, std::string(9000, '"') + "é"});
  report.samples.back().text = "the last story";
  const std::string html = report_html(report);
  EXPECT_EQ(first_fault(html), "");
  EXPECT_LT(html.size(), 2'000'000U);
  EXPECT_GT(html.size(), 500'000U) << "all of it is there";
  EXPECT_TRUE(contains(html, "mean of 143 steps"));
  EXPECT_TRUE(contains(html, "24 of 1004 samples."));
  EXPECT_TRUE(contains(html, "before the first step") && contains(html, "the last story"));
  EXPECT_TRUE(contains(html, "shortest spans are not drawn"));
}

}  // namespace
}  // namespace lab::run_report_test
