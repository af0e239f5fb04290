// Schedules that the verdict makes itself.
#include "tests/labs/05_microbatches/verdict_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "common/pipeline/validate.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::ActionList;
using lab::Schedule;

namespace {

Schedule empty_schedule(const Size& size) {
  return {size.microbatches, std::vector<ActionList>(static_cast<size_t>(size.stages))};
}

/// A pipeline that does what is possible, one thing after the other. What has been done so far is
/// the rank of a microbatch on its way: forward on stage 0, on its way to stage 1, forward there...
class RandomWalk {
 public:
  RandomWalk(const Size& size, uint64_t seed)
      : size_(size),
        generator_(seed),
        schedule_(empty_schedule(size)),
        progress_(static_cast<size_t>(size.microbatches), 0) {}

  Schedule run() {
    while (true) {
      std::vector<int> open;
      for (int k = 0; k < size_.microbatches; ++k)
        if (progress_[static_cast<size_t>(k)] < events()) open.push_back(k);
      if (open.empty()) return schedule_;
      advance(open[generator_() % open.size()]);
    }
  }

 private:
  /// Of one microbatch: passes and messages on the way down, and on the way up.
  int events() const { return 2 * (2 * size_.stages - 1); }

  void advance(int k) {
    const int event = progress_[static_cast<size_t>(k)]++;
    const int half = 2 * size_.stages - 1;
    const bool down = event < half;
    const int step = down ? event : event - half;  // 0: a pass, 1: a message, 2: a pass ...
    const int from = down ? step / 2 : size_.stages - 1 - step / 2;
    if (step % 2 == 0) return add(from, down ? ActionKind::kForward : ActionKind::kBackward, k);
    add(from, down ? ActionKind::kSendActivation : ActionKind::kSendGradient, k);
    add(down ? from + 1 : from - 1, down ? ActionKind::kRecvActivation : ActionKind::kRecvGradient,
        k);
  }

  void add(int stage, ActionKind kind, int k) {
    schedule_.stages[static_cast<size_t>(stage)].push_back({kind, k});
  }

  Size size_;
  std::mt19937_64 generator_;
  Schedule schedule_;
  std::vector<int> progress_;
};

}  // namespace

std::vector<Size> grid() {
  std::vector<Size> sizes;
  for (int stages = 1; stages <= 6; ++stages)
    for (int microbatches = 1; microbatches <= 8; ++microbatches)
      sizes.push_back({stages, microbatches});
  sizes.insert(sizes.end(), {{8, 3}, {8, 32}, {12, 7}, {16, 64}});
  return sizes;
}

Schedule gpipe_plan(const Size& size) {
  Schedule plan = empty_schedule(size);
  for (ActionList& list : plan.stages)
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward})
      for (int k = 0; k < size.microbatches; ++k) list.push_back({kind, k});
  return plan;
}

Schedule one_f_one_b_plan(const Size& size) {
  Schedule plan = empty_schedule(size);
  for (int stage = 0; stage < size.stages; ++stage) {
    ActionList& list = plan.stages[static_cast<size_t>(stage)];
    // Backward k follows forward k + warm_up, or the one before it when those are used up.
    const int warm_up = size.stages - 1 - stage;
    for (int i = 0; i < size.microbatches + warm_up; ++i) {
      if (i < size.microbatches) list.push_back({ActionKind::kForward, i});
      if (i >= warm_up) list.push_back({ActionKind::kBackward, i - warm_up});
    }
  }
  return plan;
}

Schedule random_plan(const Size& size, uint64_t seed) {
  return passes_of(random_blocking_program(size, seed));
}

Schedule random_blocking_program(const Size& size, uint64_t seed) {
  return RandomWalk(size, seed).run();
}

Schedule random_program(const Size& size, uint64_t seed) {
  std::mt19937_64 generator(seed);
  Schedule program = random_blocking_program(size, generator());
  for (ActionList& list : program.stages)
    for (size_t i = 0; i < list.size(); ++i) {
      if (!is_message(list[i].kind) || generator() % 2 == 0) continue;
      list[i].posted = true;
      // Posting earlier never hurts. A send stays behind the pass that makes its data.
      const ActionKind pass = list[i].kind == ActionKind::kSendActivation ? ActionKind::kForward
                                                                          : ActionKind::kBackward;
      const size_t first =
          is_send(list[i].kind)
              ? static_cast<size_t>(std::ranges::find(list, Action{pass, list[i].microbatch}) -
                                    list.begin()) +
                    1
              : 0;
      const size_t place = first + generator() % (i - first + 1);
      std::rotate(list.begin() + static_cast<std::ptrdiff_t>(place),
                  list.begin() + static_cast<std::ptrdiff_t>(i),
                  list.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  lab::require_valid(program, "a random program of the tests");
  return program;
}

Schedule with_all_messages(const Schedule& plan, bool posted_sends) {
  Schedule program{plan.microbatches, {}};
  const int last = plan.stage_count() - 1;
  for (int stage = 0; stage <= last; ++stage) {
    ActionList& list = program.stages.emplace_back();
    for (const Action& pass : plan.stages[static_cast<size_t>(stage)]) {
      const bool forward = pass.kind == ActionKind::kForward;
      if (forward ? stage > 0 : stage < last)
        list.push_back(
            {forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient, pass.microbatch});
      list.push_back(pass);
      if (forward ? stage < last : stage > 0)
        list.push_back({forward ? ActionKind::kSendActivation : ActionKind::kSendGradient,
                        pass.microbatch, posted_sends});
    }
  }
  return program;
}

Schedule unposted(Schedule program) {
  for (ActionList& list : program.stages)
    for (Action& action : list) action.posted = false;
  return program;
}

Schedule passes_of(const Schedule& program) {
  Schedule plan{program.microbatches, {}};
  for (const ActionList& list : program.stages) {
    ActionList& passes = plan.stages.emplace_back();
    for (const Action& action : list)
      if (!is_message(action.kind)) passes.push_back(action);
  }
  return plan;
}

int most_in_flight(const ActionList& actions) {
  int now = 0;
  int most = 0;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::kForward) most = std::max(most, ++now);
    if (action.kind == ActionKind::kBackward) --now;
  }
  return most;
}

std::string in_words(const ActionList& actions) {
  std::string words;
  for (const Action& action : actions)
    words += fmt::format("{}{}", words.empty() ? "" : " ", to_string(action));
  return words;
}

}  // namespace lab05
