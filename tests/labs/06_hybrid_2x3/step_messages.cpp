// The order of the microbatches of a step, and its messages.
#include <algorithm>

#include "common/pipeline/schedule.h"
#include "tests/labs/06_hybrid_2x3/steps.h"

namespace lab06 {
namespace {

using lab::ActionKind;
using lab::OpKind;
using lab::TokenBatch;
using lab::grading::in_words;

/// One step of one rank.
struct Sent {
  const StepCase& c;
  size_t step = 0;
  size_t rank = 0;
  const Parcel& result;

  std::string entry(const char* name) const { return fmt::format("{}.{}", name, step); }
  std::string who() const { return c.grid().name(rank); }
  const std::vector<TokenBatch>& microbatches() const {
    return c.training.steps[step][static_cast<size_t>(c.grid().pipeline(rank))];
  }
  size_t waves() const { return microbatches().size() / static_cast<size_t>(c.wave); }
  lab::ActionList actions() const {
    const lab::Schedule schedule = lab::schedule_from_text(result.text("schedule"), "schedule");
    return schedule.stages[static_cast<size_t>(c.grid().stage(rank))];
  }
};

/// Each wave runs the next m, in the order of the schedule.
void expect_order(const Sent& s) {
  if (!s.c.grid().is_last(s.rank)) return;
  Numbers expected;
  for (size_t wave = 0; wave < s.waves(); ++wave)
    for (const lab::Action& action : s.actions())
      if (action.kind == ActionKind::kForward)
        expected.push_back(static_cast<double>(wave) * s.c.wave + action.microbatch);
  const Numbers got = s.result.numbers(s.entry("order"));
  if (got == expected) return;
  Numbers with_targets = expected;
  std::erase_if(with_targets, [&](double k) {
    return s.microbatches()[static_cast<size_t>(k)].target_count() == 0;
  });
  if (got == with_targets)
    stop(s.who() +
         ": the numbers are right, but loss is not called for microbatches without targets; the "
         "contract wants it called for all");
  stop(fmt::format(
      "{}: the numbers are right, but a wave does not run on the next {} microbatches: the first "
      "wave takes 0 to {}, the next one those after them\n"
      "loss was called with microbatches {}; expected {}",
      s.who(), s.c.wave, s.c.wave - 1, fmt::join(got, " "), fmt::join(expected, " ")));
}

/// The messages of all waves, as operations.
std::vector<Operation> messages_of_schedule(const Sent& s) {
  std::vector<Operation> all;
  for (size_t wave = 0; wave < s.waves(); ++wave)
    for (const lab::Action& action : s.actions()) {
      if (!lab::is_message(action.kind)) continue;
      const TokenBatch& batch = s.microbatches()[wave * static_cast<size_t>(s.c.wave) +
                                                 static_cast<size_t>(action.microbatch)];
      const bool next_stage =
          action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvGradient;
      all.push_back(
          {.kind = lab::is_send(action.kind) ? OpKind::kSend : OpKind::kRecv,
           .group = s.c.grid().row(s.rank),
           .peer = static_cast<int>(s.rank) + (next_stage ? 1 : -1),
           .tag = action.microbatch,
           .bytes = static_cast<uint64_t>(batch.batch * batch.length * s.c.training.model.dim) *
                    sizeof(float)});
    }
  return all;
}

/// Those of the pipeline: the schedule's, and then what clipping takes. Returns the number of the
/// schedule's last one.
int64_t expect_in_pipeline(const Sent& s, const std::vector<Operation>& got) {
  const std::vector<Operation> right = messages_of_schedule(s);
  const auto same = [](const Operation& a, const Operation& b) {
    return a.kind == b.kind && a.peer == b.peer && a.tag == b.tag && a.bytes == b.bytes;
  };
  const auto [here, there] = std::ranges::mismatch(right, got, same);
  const std::vector<Operation> others(there, got.end());
  if (here != right.end())
    stop(
        fmt::format("{}: the numbers are right, but the messages in the pipeline are not those of "
                    "the schedule, once for each of the {} waves\nafter {} operations the next one "
                    "should be a {}; it is {}",
                    s.who(), s.waves(), here - right.begin(), in_words({*here}),
                    others.empty() ? "none" : in_words({others[0]})));
  const bool clips = s.c.training.max_norm > 0 && s.c.training.stages() > 1;
  const auto is_of_clipping = [](const Operation& o) {
    return o.kind == OpKind::kAllGather && o.bytes == sizeof(double);
  };
  const bool only_clips = clips && std::ranges::all_of(others, is_of_clipping);
  const bool one_sum = only_clips && others.size() == 1;
  if (clips && others.empty())
    stop(
        fmt::format("{}: the numbers are right, but lab04::clip_gradients is not called, "
                    "although the limit is positive: call it even if the limit is infinite or "
                    "never exceeded",
                    s.who()));
  if (only_clips && others.size() > 1)
    stop(
        fmt::format("{}: the numbers are right, but lab04::clip_gradients is called {} times in a "
                    "step; once is enough",
                    s.who(), others.size()));
  if (!others.empty() && !one_sum)
    stop(fmt::format(
        "{}: the numbers are right, but in addition to the messages of the schedule it calls {} in "
        "its pipeline{}",
        s.who(), in_words(others),
        clips ? ": only the all_gather of 8 bytes of lab04::clip_gradients belongs there"
              : ": a step that does not clip sends nothing else there"));
  return right.empty() ? 0 : got[right.size() - 1].id;
}

/// Those among the replicas: total_targets, and a single all_reduce. Returns its number.
int64_t expect_among_replicas(const Sent& s, const std::vector<Operation>& got) {
  constexpr uint64_t kMostBytes = 2 * sizeof(double);  // of total_targets
  const auto bytes = static_cast<uint64_t>(s.result.number("gradient_bytes"));
  std::vector<Operation> sums;
  int counts = 0;
  for (const Operation& operation : got) {
    const bool reduces = operation.kind == OpKind::kAllReduce;
    const bool counts_targets = operation.bytes > 0 && operation.bytes <= kMostBytes &&
                                (reduces || operation.kind == OpKind::kAllGather);
    if (reduces && operation.bytes == bytes) {
      sums.push_back(operation);
    } else if (counts_targets && counts == 0 && sums.empty()) {
      ++counts;
    } else if (reduces && operation.bytes > kMostBytes) {
      stop(
          fmt::format("{}: an {}; the gradients of the stage are {} bytes and travel together, in "
                      "a single all_reduce of stage.gradients()",
                      s.who(), in_words({operation}), bytes));
    } else {
      stop(
          fmt::format("{}: the numbers are right, but it calls {}: apart from total_targets there "
                      "is a single all_reduce, of stage.gradients(). Neither weights nor the state "
                      "of the optimizer need a message",
                      s.who(), in_words({operation})));
    }
  }
  const bool alone = s.c.training.replicas == 1;  // then there is nobody to send to
  if (sums.size() > 1 || (sums.empty() && !alone))
    stop(
        fmt::format("{}: {} all_reduces of the gradients, there should be 1, after the last of "
                    "the {} waves",
                    s.who(), sums.size(), s.waves()));
  return sums.empty() ? 0 : sums[0].id;
}

/// Nothing between the last wave and the all_reduce that waits for other stages.
void expect_no_wait(const Sent& s) {
  const std::vector<Operation> all = operations_of(s.result.part(s.entry("traffic")));
  const auto bytes = static_cast<uint64_t>(s.result.number("gradient_bytes"));
  const auto late = std::ranges::find_if(all, [&](const Operation& o) {
    return o.group == s.c.grid().row(s.rank) && !(lab::is_message(o.kind) && o.bytes > 8);
  });
  const auto sum = std::ranges::find_if(
      all, [&](const Operation& o) { return o.kind == OpKind::kAllReduce && o.bytes == bytes; });
  if (late < sum && sum != all.end())
    stop(fmt::format(
        "{} posts the all_reduce of its gradients too late, after {}, in which stages wait for "
        "each other. Once a stage has done its own last backward, it must wait for its replicas "
        "only: no barrier, no clipping, no message of other stages before "
        "mesh.replicas.all_reduce",
        s.who(), in_words({*late})));
}

void expect_messages(const Sent& s) {
  const std::vector<Operation> all = operations_of(s.result.part(s.entry("traffic")));
  std::vector<Operation> row;
  std::vector<Operation> column;
  for (const Operation& operation : all) {
    if (operation.group == s.c.grid().row(s.rank)) {
      row.push_back(operation);
    } else if (operation.group == s.c.grid().column(s.rank)) {
      column.push_back(operation);
    } else {
      stop(
          fmt::format("{}: the numbers are right, but it calls {} in the group \"{}\": a step has "
                      "messages in mesh.pipeline and in mesh.replicas only",
                      s.who(), in_words({operation}), operation.group));
    }
  }
  const int64_t sum = expect_among_replicas(s, column);
  if (const int64_t last = expect_in_pipeline(s, row); sum != 0 && sum < last)
    stop(s.who() + " posts the all_reduce of its gradients before it has done its last backward");
}

}  // namespace

void expect_order_and_messages(const StepCase& c, size_t step, const std::vector<Parcel>& ranks) {
  for (const auto& expect : {expect_order, expect_no_wait, expect_messages})
    for (size_t rank = 0; rank < ranks.size(); ++rank) expect({c, step, rank, ranks[rank]});
}

}  // namespace lab06
