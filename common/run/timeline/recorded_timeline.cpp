#include "common/run/timeline/recorded_timeline.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/comm/agreement.h"
#include "common/error.h"
#include "common/run/checkpoint/checkpoint_messages.h"
#include "common/tensor/accelerator.h"

namespace lab {
namespace {

SpanKind span_kind(OpKind kind) {
  if (is_collective(kind)) return SpanKind::kCollective;
  if (is_message(kind)) return kind == OpKind::kSend ? SpanKind::kSend : SpanKind::kRecv;
  // Computations have the same order in both.
  static_assert(static_cast<int>(OpKind::kAdd) - static_cast<int>(OpKind::kForward) ==
                static_cast<int>(SpanKind::kAdd));
  return static_cast<SpanKind>(static_cast<int>(kind) - static_cast<int>(OpKind::kForward));
}

uint64_t members_of(const OpRecord& op, const std::vector<GroupRecord>& groups) {
  if (!is_collective(op.kind)) return 0;
  const GroupRecord* group = find_group(groups, op.group);
  return group == nullptr ? 0 : group->members;
}

nlohmann::json to_json(const std::vector<Span>& spans) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Span& s : spans)
    rows.push_back({static_cast<int>(s.kind), s.microbatch, s.start, s.end, s.peer, s.bytes,
                    s.collective ? static_cast<int>(*s.collective) : -1, s.members});
  return rows;
}

std::vector<Span> spans_from_json(const nlohmann::json& rows) {
  std::vector<Span> spans;
  for (const nlohmann::json& row : rows) {
    const int collective = row.at(6);
    spans.push_back({.kind = static_cast<SpanKind>(row.at(0).get<int>()),
                     .microbatch = row.at(1),
                     .start = row.at(2),
                     .end = row.at(3),
                     .peer = row.at(4),
                     .bytes = row.at(5),
                     .members = row.at(7)});
    if (collective >= 0) spans.back().collective = static_cast<OpKind>(collective);
  }
  return spans;
}

/// What a rank sends to rank 0.
struct Report {
  RankTimeline timeline;
  int64_t begin_ns = 0;  // when its window begins, by its machine's clock
};

std::string encode(const Report& report) {
  const nlohmann::json json = {{"name", report.timeline.name},
                               {"spans", to_json(report.timeline.spans)},
                               {"messages", to_json(report.timeline.messages)},
                               {"begin_ns", report.begin_ns}};
  return json.dump();
}

Report decode(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {{.name = json.at("name"),
           .spans = spans_from_json(json.at("spans")),
           .messages = spans_from_json(json.at("messages"))},
          json.at("begin_ns")};
}

void delay(std::vector<Span>& spans, double seconds) {
  for (Span& span : spans) {
    span.start += seconds;
    span.end += seconds;
  }
}

/// By one clock: time begins with the earliest window. A rank that got a core late began late.
void align(std::vector<Report>& reports) {
  const int64_t first = std::ranges::min_element(reports, {}, &Report::begin_ns)->begin_ns;
  for (Report& report : reports) {
    const double late = 1e-9 * static_cast<double>(report.begin_ns - first);
    delay(report.timeline.spans, late);
    delay(report.timeline.messages, late);
  }
}

}  // namespace

void record_passes(LlamaStage& stage, FlightRecorder& recorder) {
  auto running = std::make_shared<uint64_t>(0);  // passes of a stage do not nest
  stage.observe_passes([&recorder, running](LlamaStage::Pass pass, int microbatch, bool begins) {
    const OpKind kind = pass == LlamaStage::Pass::kForward ? OpKind::kForward : OpKind::kBackward;
    if (begins)
      *running = recorder.posted({.kind = kind, .microbatch = microbatch});
    else
      recorder.done(*running);
  });
}

LossFunction recorded_loss(LossFunction loss, FlightRecorder& recorder) {
  return [loss = std::move(loss), &recorder](const Tensor& logits, const TokenBatch& batch,
                                             int64_t total_targets) {
    const ComputeScope scope(recorder, OpKind::kLoss, -1);
    return loss(logits, batch, total_targets);
  };
}

RecordedOptimizer::RecordedOptimizer(Optimizer& optimizer, FlightRecorder& recorder)
    : optimizer_(optimizer), recorder_(recorder) {}

void RecordedOptimizer::step(const Tensor& parameters, const Tensor& gradients,
                             float learning_rate) {
  const ComputeScope scope(recorder_, OpKind::kOptimizer, -1);
  optimizer_.step(parameters, gradients, learning_rate);
  if (parameters.device() == Device::kCuda) accelerator().synchronize();
  steps_ = optimizer_.steps();
}

RankTimeline rank_timeline(const std::vector<OpRecord>& history, const TimeWindow& window,
                           const std::vector<GroupRecord>& groups) {
  const auto seconds = [&](int64_t ns) {
    return 1e-9 *
           static_cast<double>(std::clamp(ns, window.begin_ns, window.end_ns) - window.begin_ns);
  };
  RankTimeline rank;
  int posted = 0;
  for (const OpRecord& op : history) {
    if (op.posted_ns < window.begin_ns || op.posted_ns >= window.end_ns) continue;
    Span span{.kind = span_kind(op.kind),
              .microbatch = op.microbatch,
              .start = seconds(op.posted_ns),
              .end = seconds(op.done_ns),
              .peer = op.peer,
              .bytes = op.bytes,
              .members = members_of(op, groups)};
    if (is_collective(op.kind)) span.collective = op.kind;
    if (is_message(op.kind)) {
      if (span.microbatch < 0) span.microbatch = op.tag;
      rank.messages.push_back(span);
    }
    if (op.started_ns != 0) {  // a collective that was posted
      Span travels = span;
      travels.start = seconds(op.started_ns);
      travels.end = seconds(op.finished_ns);
      travels.microbatch = posted++;
      rank.messages.push_back(travels);
    }
    if (is_message(op.kind) || is_collective(op.kind)) {
      if (op.waiting_ns == 0) continue;
      span.start = seconds(op.waiting_ns);
    }
    rank.spans.push_back(span);
  }
  const auto earlier = [](const Span& a, const Span& b) { return a.start < b.start; };
  std::ranges::stable_sort(rank.spans, earlier);
  std::ranges::stable_sort(rank.messages, earlier);
  return rank;
}

Timeline simulated_timeline(const SimulationReport& report, int64_t begin_ns) {
  const TimeWindow window{.begin_ns = begin_ns, .end_ns = std::numeric_limits<int64_t>::max()};
  Timeline timeline{.unit = "s", .ranks = {}};
  for (size_t rank = 0; rank < report.history.size(); ++rank)
    timeline.ranks.push_back(
        rank_timeline(report.history[rank], window, report.snapshots[rank].groups));
  return timeline;
}

std::optional<Timeline> gather_timeline(Job& job, const std::string& name,
                                        const TimeWindow& window) {
  const RankEnvironment& environment = job.environment();
  const bool one_machine = all_true(job.world(), environment.local_rank == environment.rank);
  const FlightRecorder& recorder = job.world().recorder();
  Report mine{rank_timeline(recorder.history(), window, recorder.snapshot().groups),
              window.begin_ns};
  mine.timeline.name = name;
  std::vector<Report> reports;
  for (const std::string& text : gather_texts(job.world(), encode(mine)))
    reports.push_back(decode(text));
  if (reports.empty()) return std::nullopt;
  if (one_machine) align(reports);
  Timeline timeline{.unit = "s", .ranks = {}};
  for (Report& report : reports) timeline.ranks.push_back(std::move(report.timeline));
  return timeline;
}

}  // namespace lab
