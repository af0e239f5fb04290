// Correct functions of tasks 3, 4 and 5 in the place of the student's, for the tests of the tasks
// that build on them. They refuse what they cannot answer.
//
// The contract, microbatches.h, declares them weak; it is not included here, so that these are
// strong and take their place.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/comm/process_group.h"
#include "common/data/batch.h"
#include "common/model/llama_stage.h"
#include "common/pipeline/schedule.h"
#include "tests/labs/05_microbatches/wave_log.h"

namespace lab05 {

using lab::Action;
using lab::ActionKind;
using lab::Tensor;
using LossFunction = std::function<double(const Tensor&, const lab::TokenBatch&, int64_t)>;

lab::Schedule with_blocking_messages(const lab::Schedule& plan);
lab::Schedule with_messages(const lab::Schedule& plan);
double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, lab::ProcessGroup& pipeline);

namespace {

/// What is known of one microbatch on its way through this stage.
struct Passage {
  Tensor input;           // of the forward
  Tensor output;          // of the forward; on the last stage, after the loss, its gradient
  Tensor gradient;        // of the output
  Tensor input_gradient;  // of the backward
  std::optional<lab::Work> input_recv;
  std::optional<lab::Work> gradient_recv;
};

void finish(std::optional<lab::Work>& work) {
  if (work) work->wait();
  work.reset();
}

class Runner {
 public:
  Runner(lab::LlamaStage& stage, std::span<const lab::TokenBatch> microbatches,
         const LossFunction& loss, int64_t total_targets, lab::ProcessGroup& pipeline)
      : stage_(stage),
        microbatches_(microbatches),
        loss_(loss),
        total_targets_(total_targets),
        pipeline_(pipeline),
        passages_(microbatches.size()) {}

  double run(const lab::ActionList& actions) {
    for (const Action& action : actions) step(action);
    lab::wait_all(sends_);
    return loss_sum_;
  }

 private:
  void step(const Action& action) {
    Passage& passage = passages_[static_cast<size_t>(action.microbatch)];
    const int rank = pipeline_.rank();
    switch (action.kind) {
      case ActionKind::kForward:
        return forward(action.microbatch, passage);
      case ActionKind::kBackward:
        return backward(action.microbatch, passage);
      case ActionKind::kRecvActivation:
        return recv(action, rank - 1, passage.input, passage.input_recv);
      case ActionKind::kRecvGradient:
        return recv(action, rank + 1, passage.gradient, passage.gradient_recv);
      case ActionKind::kSendActivation:
        return send(action, rank + 1, passage.output);
      case ActionKind::kSendGradient:
        return send(action, rank - 1, passage.input_gradient);
    }
  }

  void forward(int k, Passage& passage) {
    const lab::TokenBatch& microbatch = microbatches_[static_cast<size_t>(k)];
    finish(passage.input_recv);
    passage.output =
        stage_.span().embeds ? stage_.forward(microbatch, k) : stage_.forward(passage.input, k);
    passage.input = {};
    if (!stage_.span().has_head) return;
    loss_sum_ += loss_(passage.output, microbatch, total_targets_);
    passage.gradient = passage.output;
  }

  void backward(int k, Passage& passage) {
    finish(passage.gradient_recv);
    passage.input_gradient = stage_.backward(passage.gradient, k);
    passage.gradient = passage.output = {};
  }

  void recv(const Action& action, int from, Tensor& tensor, std::optional<lab::Work>& work) {
    const lab::TokenBatch& microbatch = microbatches_[static_cast<size_t>(action.microbatch)];
    tensor = Tensor::empty({microbatch.batch, microbatch.length, stage_.config().dim});
    work = pipeline_.irecv(tensor, from, action.microbatch);
    if (!action.posted) finish(work);
  }

  void send(const Action& action, int to, const Tensor& tensor) {
    lab::Work work = pipeline_.isend(tensor, to, action.microbatch);
    if (!action.posted) return work.wait();
    sends_.push_back(std::move(work));
  }

  lab::LlamaStage& stage_;
  std::span<const lab::TokenBatch> microbatches_;
  const LossFunction& loss_;
  int64_t total_targets_;
  lab::ProcessGroup& pipeline_;
  std::vector<Passage> passages_;
  std::vector<lab::Work> sends_;
  double loss_sum_ = 0;
};

template <typename... Args>
void refuse_unless(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Refused(fmt::format(format, std::forward<Args>(args)...));
}

/// Notes the call, and refuses one that train_step should not make.
void check_call(const lab::ActionList& actions, std::span<const lab::TokenBatch> microbatches,
                int rank) {
  StepLog& log = step_log();
  if (log.schedule == nullptr) return;
  log.waves.push_back(static_cast<double>(microbatches.data() - log.microbatches.data()));
  const std::vector<lab::ActionList>& lists = log.schedule->stages;
  const auto found = std::ranges::find(lists, actions);
  refuse_unless(found != lists.end(),
                "run_actions was called with a list of actions that no stage of the schedule has");
  refuse_unless(actions == lists[static_cast<size_t>(rank)],
                "run_actions was called with the actions of stage {}; this rank is stage {}: "
                "schedule.stages[pipeline.rank()]",
                found - lists.begin(), rank);
}

lab::Schedule with_sends(const lab::Schedule& plan, bool posted) {
  lab::Schedule program{plan.microbatches, {}};
  const auto last = plan.stages.size() - 1;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    lab::ActionList list;
    for (const Action& pass : plan.stages[stage]) {
      const bool forward = pass.kind == ActionKind::kForward;
      const bool reads = forward ? stage > 0 : stage < last;
      const bool hands_on = forward ? stage < last : stage > 0;
      if (reads)
        list.push_back(
            {forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient, pass.microbatch});
      list.push_back(pass);
      if (hands_on)
        list.push_back({forward ? ActionKind::kSendActivation : ActionKind::kSendGradient,
                        pass.microbatch, posted});
    }
    program.stages.push_back(list);
  }
  return program;
}

}  // namespace

lab::Schedule with_blocking_messages(const lab::Schedule& plan) { return with_sends(plan, false); }
lab::Schedule with_messages(const lab::Schedule& plan) { return with_sends(plan, true); }

double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, lab::ProcessGroup& pipeline) {
  check_call(actions, microbatches, pipeline.rank());
  for (const Action& action : actions)
    refuse_unless(static_cast<size_t>(action.microbatch) < microbatches.size(),
                  "run_actions was called with {} microbatches; its actions ask for microbatch {}",
                  microbatches.size(), action.microbatch);
  return Runner(stage, microbatches, loss, total_targets, pipeline).run(actions);
}

}  // namespace lab05
