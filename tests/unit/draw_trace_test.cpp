// Timelines as traces: JSON that holds every span once, on tracks without overlaps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/pipeline/drawing/draw.h"
#include "common/pipeline/simulate.h"
#include "tests/unit/pipeline_plans.h"

namespace lab::draw_trace_test {
namespace {

using nlohmann::json;

std::vector<json> events_of(const Timeline& timeline, const std::string& phase) {
  const json trace = json::parse(chrome_trace(timeline));
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == phase) events.push_back(event);
  return events;
}

// The names of the tracks by their numbers.
std::map<int, std::string> tracks_of(const Timeline& timeline) {
  std::map<int, std::string> tracks;
  for (const json& event : events_of(timeline, "M"))
    if (event.at("name") == "thread_name")
      tracks[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
  return tracks;
}

Timeline example() {
  return simulate(with_messages_beside(one_f_one_b_plan(3, 5), true), {{1, 2, 1.5}});
}

TEST(DrawTrace, HoldsEverySpanAndMessage) {
  const Timeline timeline = example();
  const std::map<int, std::string> tracks = tracks_of(timeline);
  std::multiset<std::string> found;
  for (const json& event : events_of(timeline, "X"))
    found.insert(fmt::format("{} {} {} {}", tracks.at(event.at("tid").get<int>()),
                             event.at("cat").get<std::string>(), event.at("ts").get<double>(),
                             event.at("dur").get<double>()));
  std::multiset<std::string> expected;
  for (const RankTimeline& rank : timeline.ranks) {
    const auto add = [&](const std::string& track, const Span& span) {
      expected.insert(fmt::format("{} {} {} {}", track, span_name(span.kind), 1000 * span.start,
                                  1000 * span.length()));
    };
    for (const Span& span : rank.spans) add(rank.name, span);
    for (const Span& span : rank.messages) add("messages of " + rank.name, span);
  }
  EXPECT_EQ(found, expected);
}

TEST(DrawTrace, IsOneProcessWithoutAMainThread) {  // several are folded up when a viewer opens it
  const Timeline timeline = example();
  for (const json& event : events_of(timeline, "X")) {
    EXPECT_EQ(event.at("pid"), events_of(timeline, "M")[0].at("pid"));
    EXPECT_NE(event.at("pid"), event.at("tid"));
  }
  // Tracks are shown by number: those of the ranks come first.
  EXPECT_EQ(tracks_of(timeline).at(3), "stage 2");
  EXPECT_EQ(tracks_of(timeline).at(4), "messages of stage 0");
}

TEST(DrawTrace, SpansOfATrackDoNotOverlap) {
  std::map<int, double> free_from;
  for (const json& event : events_of(example(), "X")) {
    double& free = free_from[event.at("tid").get<int>()];
    EXPECT_GE(event.at("ts").get<double>(), free);
    free = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  EXPECT_GT(free_from.size(), 6U);  // there were messages side by side
}

TEST(DrawTrace, NamesSayWhatIsDone) {
  Timeline timeline{"s", std::vector<RankTimeline>(2)};
  timeline.ranks[1].spans = {{SpanKind::kRecv, 3, 0, 0.5, 0},   {SpanKind::kForward, 3, 0.5, 1},
                             {SpanKind::kLoss, 3, 1, 1.25},     {SpanKind::kBackward, 3, 1.25, 2},
                             {SpanKind::kSend, 3, 2, 3, 0},     {SpanKind::kRecv, 4, 3, 4, 2},
                             {SpanKind::kCollective, -1, 4, 5}, {SpanKind::kOptimizer, -1, 5, 6}};
  timeline.ranks[1].messages = {{SpanKind::kSend, 3, 2, 3, 2, 4096}};
  std::vector<std::string> names;
  for (const json& event : events_of(timeline, "X")) names.push_back(event.at("name"));
  EXPECT_EQ(names, (std::vector<std::string>{"wait for F3", "F3", "loss 3", "B3", "wait to send B3",
                                             "wait for B4", "collective", "optimizer", "send F3"}));
  const json message = events_of(timeline, "X").back();
  EXPECT_EQ(message.at("args"), (json{{"microbatch", 3}, {"peer", 2}, {"bytes", 4096}}));
  EXPECT_EQ(message.at("ts"), 2e6);  // microseconds
  EXPECT_EQ(message.at("dur"), 1e6);
  EXPECT_EQ(tracks_of(timeline).at(1), "rank 0");
}

TEST(DrawTrace, AnyNameIsValidJson) {
  Timeline timeline = example();
  timeline.ranks[0].name = "\"\\\n\xff";
  EXPECT_EQ(tracks_of(timeline).at(1), "\"\\??");
  EXPECT_TRUE(json::parse(chrome_trace({})).at("traceEvents").empty());
}

}  // namespace
}  // namespace lab::draw_trace_test
