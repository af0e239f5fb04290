// A schedule at work, in simulated time.
#include "common/pipeline/execution.h"

#include <algorithm>

#include "common/error.h"

namespace lab {
namespace {

template <typename T>
auto& at(T& values, int64_t index) {
  return values[static_cast<size_t>(index)];
}

bool is_gradient(ActionKind kind) {
  return kind == ActionKind::kRecvGradient || kind == ActionKind::kSendGradient;
}

}  // namespace

Execution::Execution(const Schedule& schedule, const std::vector<StageCosts>& costs)
    : schedule_(schedule), costs_(costs), is_plan_(!schedule.has_messages()) {
  const auto stages = static_cast<size_t>(schedule.stage_count());
  messages_.resize(2 * (stages - 1) * static_cast<size_t>(schedule.microbatches));
  stages_.resize(stages);
  timeline_.ranks.resize(stages);
  for (size_t stage = 0; stage < stages; ++stage) {
    timeline_.ranks[stage].name = fmt::format("stage {}", stage);
    ready_.push_back(static_cast<int>(stage));
  }
}

bool Execution::run() {
  while (!ready_.empty()) {
    const int stage = ready_.front();
    ready_.pop_front();
    while (step(stage)) {
    }
  }
  return std::ranges::all_of(stages_, &Stage::finished);
}

bool Execution::step(int stage) {
  Stage& state = at(stages_, stage);
  const ActionList& actions = at(schedule_.stages, stage);
  if (state.next == actions.size()) return finish(stage);
  const Action& action = actions[state.next];
  const bool done =
      is_message(action.kind) ? step_message(stage, action) : step_pass(stage, action);
  if (done) ++state.next;
  return done;
}

bool Execution::step_message(int stage, const Action& action) {
  const int64_t message = message_of(stage, action);
  const bool send = is_send(action.kind);
  const Message& state = at(messages_, message);
  if ((send ? state.sent : state.received) == kNotYet) begin(stage, message, send);
  return action.posted || wait(stage, message, send ? SpanKind::kSend : SpanKind::kRecv);
}

bool Execution::step_pass(int stage, const Action& action) {
  const bool forward = action.kind == ActionKind::kForward;
  const int last = schedule_.stage_count() - 1;
  if (stage != (forward ? 0 : last)) {
    const ActionKind recv = forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient;
    if (!wait(stage, message_of(stage, {recv, action.microbatch}), SpanKind::kRecv)) return false;
  }
  double& now = at(stages_, stage).now;
  const double start = now;
  now += forward ? at(costs_, stage).forward : at(costs_, stage).backward;
  at(timeline_.ranks, stage)
      .spans.push_back({.kind = forward ? SpanKind::kForward : SpanKind::kBackward,
                        .microbatch = action.microbatch,
                        .start = start,
                        .end = now});
  if (is_plan_ && stage != (forward ? last : 0)) {
    const ActionKind send = forward ? ActionKind::kSendActivation : ActionKind::kSendGradient;
    begin(stage, message_of(stage, {send, action.microbatch}), true);
  }
  return true;
}

bool Execution::finish(int stage) {
  Stage& state = at(stages_, stage);
  const ActionList& actions = at(schedule_.stages, stage);
  for (; state.next_to_wait < actions.size(); ++state.next_to_wait) {
    const Action& action = actions[state.next_to_wait];
    if (action.posted && is_send(action.kind) &&
        !wait(stage, message_of(stage, action), SpanKind::kSend))
      return false;
  }
  state.finished = true;
  return false;
}

// Numbered by boundary, then activations before gradients, then microbatches.
int64_t Execution::message_of(int stage, const Action& message) const {
  const bool to_or_from_behind =
      message.kind == ActionKind::kSendActivation || message.kind == ActionKind::kRecvGradient;
  const int boundary = to_or_from_behind ? stage : stage - 1;
  const int64_t row = 2 * int64_t{boundary} + (is_gradient(message.kind) ? 1 : 0);
  return row * schedule_.microbatches + message.microbatch;
}

int Execution::peer_of(int stage, int64_t message) const {
  const auto boundary = static_cast<int>(message / schedule_.microbatches / 2);
  return stage == boundary ? boundary + 1 : boundary;
}

void Execution::begin(int stage, int64_t message, bool send) {
  Message& state = at(messages_, message);
  const int peer = peer_of(stage, message);
  const double now = at(stages_, stage).now;
  const auto add_span = [&](int rank, int other, SpanKind kind) {
    std::vector<Span>& spans = at(timeline_.ranks, rank).messages;
    spans.push_back({.kind = kind,
                     .microbatch = static_cast<int>(message % schedule_.microbatches),
                     .start = now,
                     .end = now,
                     .peer = other});
    return spans.size() - 1;
  };
  if (send) {
    state.sent = now;
    state.send_span = add_span(stage, peer, SpanKind::kSend);
  }
  if (!send || is_plan_) {  // without actions for them, messages are received when sent
    const int receiver = send ? peer : stage;
    state.received = now;
    state.recv_span = add_span(receiver, send ? stage : peer, SpanKind::kRecv);
  }
  if (state.sent == kNotYet || state.received == kNotYet) return;
  match(message, send ? peer : stage);
  if (at(stages_, peer).waits_for == message) ready_.push_back(peer);
}

void Execution::match(int64_t message, int receiver) {
  Message& state = at(messages_, message);
  const int sender = peer_of(receiver, message);
  state.arrival = std::max(state.sent, state.received) + at(costs_, sender).message;
  at(timeline_.ranks, sender).messages[state.send_span].end = state.arrival;
  at(timeline_.ranks, receiver).messages[state.recv_span].end = state.arrival;
}

// Whether the message has arrived; if so, the stage has waited until then.
bool Execution::wait(int stage, int64_t message, SpanKind kind) {
  const double arrival = at(messages_, message).arrival;
  Stage& state = at(stages_, stage);
  state.waits_for = arrival == kNotYet ? message : kNoMessage;
  if (arrival == kNotYet) return false;
  if (arrival <= state.now) return true;
  if (!is_plan_)
    at(timeline_.ranks, stage)
        .spans.push_back({.kind = kind,
                          .microbatch = static_cast<int>(message % schedule_.microbatches),
                          .start = state.now,
                          .end = arrival,
                          .peer = peer_of(stage, message)});
  state.now = arrival;
  return true;
}

BlockedStage Execution::blocked(int stage) const {
  const Stage& state = at(stages_, stage);
  const ActionList& actions = at(schedule_.stages, stage);
  const bool at_end = state.next == actions.size();
  return {.stage = stage,
          .action = actions[at_end ? state.next_to_wait : state.next],
          .waits_for = peer_of(stage, state.waits_for)};
}

std::vector<BlockedStage> Execution::circle() const {
  std::vector<BlockedStage> path;
  std::vector<bool> on_path(stages_.size());
  const auto lowest = std::ranges::find(stages_, false, &Stage::finished);
  int stage = static_cast<int>(lowest - stages_.begin());
  // Stages wait for neighbours: from the lowest the path leads up until two wait for each other.
  // (No stage waits for a finished one, which has begun all its messages; the loop would end, too.)
  while (!at(stages_, stage).finished && !on_path[static_cast<size_t>(stage)]) {
    on_path[static_cast<size_t>(stage)] = true;
    path.push_back(blocked(stage));
    stage = path.back().waits_for;
  }
  path.erase(path.begin(), std::ranges::find(path, stage, &BlockedStage::stage));
  return path;
}

Timeline Execution::take_timeline() {
  for (RankTimeline& rank : timeline_.ranks)
    std::ranges::stable_sort(rank.messages, {}, &Span::start);
  return std::move(timeline_);
}

}  // namespace lab
