#include "common/run/timeline/recorded_timeline.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/comm/agreement.h"
#include "common/io/json_file.h"
#include "common/run/checkpoint/checkpoint_messages.h"
#include "common/tensor/accelerator.h"

namespace lab {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OpRecord, id, kind, state, group, peer, tag, microbatch, bytes,
                                   sequence, posted_ns, started_ns, finished_ns, waiting_ns,
                                   done_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupRecord, id, members, collectives, name)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimeWindow, begin_ns, end_ns)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RecordedWindow, name, window, history, groups)

namespace {

SpanKind span_kind(OpKind kind) {
  if (is_collective(kind)) return SpanKind::kCollective;
  if (is_message(kind)) return kind == OpKind::kSend ? SpanKind::kSend : SpanKind::kRecv;
  // Computations have the same order in both.
  static_assert(static_cast<int>(OpKind::kAdd) - static_cast<int>(OpKind::kForward) ==
                static_cast<int>(SpanKind::kAdd));
  return static_cast<SpanKind>(static_cast<int>(kind) - static_cast<int>(OpKind::kForward));
}

bool began_in(const TimeWindow& window, const OpRecord& op) {
  return op.posted_ns >= window.begin_ns && op.posted_ns < window.end_ns;
}

uint64_t members_of(const OpRecord& op, const std::vector<GroupRecord>& groups) {
  if (!is_collective(op.kind)) return 0;
  const GroupRecord* group = find_group(groups, op.group);
  return group == nullptr ? 0 : group->members;
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
    if (!began_in(window, op)) continue;
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

Timeline timeline_of(const std::vector<RecordedWindow>& ranks, bool one_clock) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const RecordedWindow& rank : ranks) first = std::min(first, rank.window.begin_ns);
  Timeline timeline{.unit = "s", .ranks = {}};
  for (const auto& [name, window, history, groups] : ranks) {
    // By one clock, a rank that got a core late began late.
    const TimeWindow shown{.begin_ns = one_clock ? first : window.begin_ns,
                           .end_ns = window.end_ns};
    timeline.ranks.push_back(rank_timeline(history, shown, groups));
    timeline.ranks.back().name = name;
  }
  return timeline;
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
  RecordedWindow mine{name, window, recorder.history(), recorder.snapshot().groups};
  std::erase_if(mine.history, [&](const OpRecord& op) { return !began_in(window, op); });
  std::vector<RecordedWindow> all;
  for (const std::string& text : gather_texts(job.world(), dumped(mine)))
    all.push_back(nlohmann::json::parse(text).get<RecordedWindow>());
  if (all.empty()) return std::nullopt;
  return timeline_of(all, one_machine);
}

}  // namespace lab
