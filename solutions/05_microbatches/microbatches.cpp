// Lab 05 · a pipeline that is kept busy: solution.
#include "labs/05_microbatches/microbatches.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "common/error.h"
#include "labs/04_pipeline_1f1b/pipeline_1f1b.h"

namespace lab05 {
namespace {

using lab::Action;
using lab::ActionKind;

/// Received tensors by microbatch, and the messages that carry them from stage to stage.
class Mail {
 public:
  Mail(lab::ProcessGroup& pipeline, lab::Device device) : pipeline_(pipeline), device_(device) {}

  void recv(const Action& action, int from, const lab::TokenBatch& microbatch, int64_t dim) {
    Arrival arrival{lab::Tensor::empty({microbatch.batch, microbatch.length, dim}, device_), {}};
    if (action.posted)
      arrival.work = pipeline_.irecv(arrival.tensor, from, action.microbatch);
    else
      pipeline_.recv(arrival.tensor, from, action.microbatch);
    arrivals_.emplace(action.microbatch, std::move(arrival));
  }

  /// What has been received for a microbatch. Can be taken once.
  lab::Tensor take(int microbatch) {
    auto arrival = arrivals_.extract(microbatch);
    lab::require(!arrival.empty(), "microbatch {} is used before it is received", microbatch);
    if (arrival.mapped().work) arrival.mapped().work->wait();
    return arrival.mapped().tensor;
  }

  void send(const Action& action, int to, const lab::Tensor& tensor) {
    if (action.posted)
      sends_.push_back(pipeline_.isend(tensor, to, action.microbatch));
    else
      pipeline_.send(tensor, to, action.microbatch);
  }

  void wait_for_sends() { lab::wait_all(sends_); }

 private:
  struct Arrival {
    lab::Tensor tensor;
    std::optional<lab::Work> work;  // if it was posted
  };
  lab::ProcessGroup& pipeline_;
  lab::Device device_;  // where the stage wants what arrives
  std::map<int, Arrival> arrivals_;
  std::vector<lab::Work> sends_;
};

}  // namespace

// Task 1
lab::Schedule gpipe(int stages, int microbatches) {
  lab::ActionList list;
  for (int k = 0; k < microbatches; ++k) list.push_back({ActionKind::kForward, k});
  for (int k = 0; k < microbatches; ++k) list.push_back({ActionKind::kBackward, k});
  return {microbatches, std::vector(static_cast<size_t>(stages), list)};
}

// Task 2
lab::Schedule one_f_one_b(int stages, int microbatches) {
  lab::Schedule plan{microbatches, {}};
  for (int s = 0; s < stages; ++s) {
    const int warm_up = std::min(stages - 1 - s, microbatches);
    lab::ActionList list;
    int forwards = 0;
    for (; forwards < warm_up; ++forwards) list.push_back({ActionKind::kForward, forwards});
    for (int backwards = 0; backwards < microbatches; ++backwards) {
      if (forwards < microbatches) list.push_back({ActionKind::kForward, forwards++});
      list.push_back({ActionKind::kBackward, backwards});
    }
    plan.stages.push_back(std::move(list));
  }
  return plan;
}

// Task 3
lab::Schedule with_blocking_messages(const lab::Schedule& plan) {
  lab::Schedule program{plan.microbatches, {}};
  const int last = plan.stage_count() - 1;
  for (int s = 0; s <= last; ++s) {
    lab::ActionList& list = program.stages.emplace_back();
    for (const Action& pass : plan.stages[static_cast<size_t>(s)]) {
      const int k = pass.microbatch;
      if (pass.kind == ActionKind::kForward) {
        if (s > 0) list.push_back({ActionKind::kRecvActivation, k});
        list.push_back(pass);
        if (s < last) list.push_back({ActionKind::kSendActivation, k});
      } else {
        if (s < last) list.push_back({ActionKind::kRecvGradient, k});
        list.push_back(pass);
        if (s > 0) list.push_back({ActionKind::kSendGradient, k});
      }
    }
  }
  return program;
}

// Tasks 4a and 4b
double run_actions(lab::LlamaStage& stage, const lab::ActionList& actions,
                   std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                   int64_t total_targets, lab::ProcessGroup& pipeline) {
  const int before = pipeline.rank() - 1;
  const int behind = pipeline.rank() + 1;
  const bool last = stage.span().has_head;
  const int64_t dim = stage.config().dim;
  Mail activations(pipeline, stage.device());
  Mail gradients(pipeline, stage.device());
  std::map<int, lab::Tensor> outputs;          // of forwards; on the last stage, after the loss
  std::map<int, lab::Tensor> input_gradients;  // of backwards
  double loss_sum = 0.0;

  for (const Action& action : actions) {
    const int k = action.microbatch;
    const lab::TokenBatch& microbatch = microbatches[static_cast<size_t>(k)];
    switch (action.kind) {
      case ActionKind::kRecvActivation:
        activations.recv(action, before, microbatch, dim);
        break;
      case ActionKind::kForward:
        outputs[k] = stage.span().embeds ? stage.forward(microbatch, k)
                                         : stage.forward(activations.take(k), k);
        if (last) loss_sum += loss(outputs[k], microbatch, total_targets);
        break;
      case ActionKind::kSendActivation:
        activations.send(action, behind, outputs.at(k));
        break;
      case ActionKind::kRecvGradient:
        gradients.recv(action, behind, microbatch, dim);
        break;
      case ActionKind::kBackward:
        input_gradients[k] = stage.backward(last ? outputs.at(k) : gradients.take(k), k);
        outputs.erase(k);
        break;
      case ActionKind::kSendGradient:
        gradients.send(action, before, input_gradients.at(k));
        input_gradients.erase(k);
        break;
    }
  }
  activations.wait_for_sends();
  gradients.wait_for_sends();
  return loss_sum;
}

// Task 5: all messages are posted, so a stage waits only for data, and the passes of a valid
// schedule do not wait for each other in a circle. Each recv is posted one pass early: its message
// travels during that pass.
lab::Schedule with_messages(const lab::Schedule& plan) {
  lab::Schedule program = with_blocking_messages(plan);
  for (lab::ActionList& list : program.stages) {
    auto pass = list.begin();  // the latest
    for (auto action = list.begin(); action != list.end(); ++action) {
      if (!is_message(action->kind)) {
        pass = action;
        continue;
      }
      action->posted = true;
      if (!is_send(action->kind)) std::rotate(pass++, action, action + 1);  // to before the pass
    }
  }
  return program;
}

// Task 6
double train_step(lab::LlamaStage& stage, lab::Optimizer& optimizer, const lab::Schedule& schedule,
                  std::span<const lab::TokenBatch> microbatches, const LossFunction& loss,
                  float learning_rate, double max_gradient_norm, lab::ProcessGroup& pipeline) {
  const auto wave = static_cast<size_t>(schedule.microbatches);
  lab::require(!microbatches.empty() && microbatches.size() % wave == 0,
               "{} microbatches: the schedule takes waves of {}, at least one", microbatches.size(),
               wave);
  const lab::ActionList& actions = schedule.stages[static_cast<size_t>(pipeline.rank())];
  int64_t total_targets = 0;
  if (stage.span().has_head)
    for (const lab::TokenBatch& microbatch : microbatches)
      total_targets += microbatch.target_count();

  stage.zero_gradients();
  double mean_loss = 0.0;
  for (size_t first = 0; first < microbatches.size(); first += wave)
    mean_loss += run_actions(stage, actions, microbatches.subspan(first, wave), loss, total_targets,
                             pipeline);
  if (max_gradient_norm > 0.0) lab04::clip_gradients(stage, max_gradient_norm, pipeline);
  optimizer.step(stage.parameters(), stage.gradients(), learning_rate);
  return mean_loss;
}

}  // namespace lab05
